"""How much one key may hold at once of what all clients share (--max-share-per-key), and how more is refused.

The admin key is not bounded, and neither are clients without keys of their own. Both have an empty name here.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from ramet.runtime.errors import ClientError


def part(whole: int, share: float) -> int:
    """The share of `whole` that one key may hold, at least one."""
    return max(1, int(whole * share))


def over(what: str, most: int, held: int, hint: str = "") -> ClientError:
    """The error for a key that holds too much. `what`: the plural noun of what is counted."""
    fact = f"This key may have {most} {what} at once (--max-share-per-key), and has {held}."
    return ClientError("", fact, hint or "try again when some have ended", 429, "rate_limit_exceeded")


class SharedPlaces:
    """`whole` places, of which one key has at most its share at once. Whoever finds none free waits."""

    def __init__(self, whole: int, share: float) -> None:
        self._free = asyncio.Semaphore(whole)
        self._free_of = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(part(whole, share)))

    @asynccontextmanager
    async def one(self, name: str) -> AsyncIterator[None]:
        """A place for this key within the block."""
        async with self._free_of[name] if name else nullcontext(), self._free:
            yield


class KeyHoldings:
    """How many of something each key holds."""

    def __init__(self, what: str, whole: int, share: float) -> None:
        self._what, self._most = what, part(whole, share)
        self._num = Counter[str]()

    def refusal(self, name: str) -> ClientError | None:
        """The error for one more of this key. None: it may have one more."""
        if name and self._num[name] >= self._most:
            return over(self._what, self._most, self._num[name])
        return None

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        """Count one more for this key within the block."""
        if not name:
            yield
            return
        self._num[name] += 1
        try:
            yield
        finally:
            self._num[name] -= 1
            if not self._num[name]:
                del self._num[name]
