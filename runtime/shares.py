"""What one key may hold at once of what all clients share (--max-share-per-key), and how it is refused more.

The admin key has no bound, and neither have clients that have no keys of their own: their owner has no name here.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ramet.runtime.errors import ClientError


def part(whole: int, share: float) -> int:
    """At least one."""
    return max(1, int(whole * share))


def over(what: str, most: int, held: int, hint: str = "") -> ClientError:
    """`what`: a bound, by what it counts."""
    fact = f"This key may have {most} {what} at once (--max-share-per-key), and has {held}."
    return ClientError("", fact, hint or "try again when some have ended", 429, "rate_limit_exceeded")


class Held:
    """How many of something each key holds."""

    def __init__(self, what: str, whole: int, share: float) -> None:
        self._what, self._most = what, part(whole, share)
        self._num = Counter[str]()

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        """One more within the block. Raises ClientError."""
        if not name:
            yield
            return
        if self._num[name] >= self._most:
            raise over(self._what, self._most, self._num[name])
        self._num[name] += 1
        try:
            yield
        finally:
            self._num[name] -= 1
            if not self._num[name]:
                del self._num[name]
