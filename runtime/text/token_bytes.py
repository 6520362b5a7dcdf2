"""Which ordinary tokens begin with some bytes, and which tokens spell them: the vocabulary in the order of its bytes.

Ordinary are the tokens that stand for text of their own: no added, special or end token, none without bytes, none whose
bytes depend on its neighbours, and none that the model has no logit for.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator


class TokenBytes:
    """`spelled`: the bytes and the id of every ordinary token. Never changes."""

    def __init__(self, spelled: Iterable[tuple[bytes, int]]) -> None:
        pairs = sorted(spelled)
        self._spelled = [text for text, _ in pairs]
        self._ids = array("i", (token for _, token in pairs))
        self.longest = max(map(len, self._spelled), default=0)

    def begin_with(self, text: bytes) -> memoryview:
        """Ids of the tokens whose bytes begin with `text`, those that are equal to it among them. int32"""
        start, stop = self._range(text)
        return memoryview(self._ids)[start:stop]

    def bytes_of_those(self, text: bytes) -> list[bytes]:
        """The bytes of each of `begin_with(text)`."""
        start, stop = self._range(text)
        return self._spelled[start:stop]

    def equal(self, text: bytes) -> memoryview:
        """Ids of the tokens that are spelled exactly so. int32"""
        start = bisect_left(self._spelled, text)
        return memoryview(self._ids)[start : bisect_left(self._spelled, text + b"\0", start)]

    def goes_on(self, text: bytes) -> bool:
        """Whether a token begins with `text` and is longer."""
        start, stop = self._range(text)
        return stop - start > len(self.equal(text))

    def pieces(self, text: bytes) -> Iterator[int]:
        """Lengths of the tokens, shorter than `text`, with which it begins."""
        for length in range(1, min(len(text), self.longest + 1)):
            if len(self.equal(text[:length])):
                yield length

    def spell(self, text: bytes) -> list[int] | None:
        """Tokens, as few as possible, whose bytes are `text`; None where there are none."""
        best: list[list[int] | None] = [[]]  # of each beginning of `text`
        for end in range(1, len(text) + 1):
            found: list[int] | None = None
            for start in range(max(end - self.longest, 0), end):
                before, last = best[start], self.equal(text[start:end])
                if before is not None and len(last) and (found is None or len(before) + 1 < len(found)):
                    found = [*before, last[0]]
            best.append(found)
        return best[-1]

    def _range(self, text: bytes) -> tuple[int, int]:
        start = bisect_left(self._spelled, text)
        after = text.rstrip(b"\xff")  # the first bytes that are larger than all that begin with `text`
        if not after:
            return start, len(self._spelled)
        return start, bisect_left(self._spelled, after[:-1] + bytes([after[-1] + 1]), start)
