"""Which ordinary tokens begin with some bytes, and which tokens spell them: the vocabulary in the order of its bytes.

Ordinary are the tokens that stand for text of their own: no added, special or end token, none without bytes, none whose
bytes depend on its neighbours, and none that the model has no logit for.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_BEYOND = 16  # tails whose tokens are kept


class Beyond(NamedTuple):
    """What each of some tokens has after a text that all of them begin with."""

    texts: list[bytes]  # sorted
    whole: "array[int]"  # [n] int32: a token that is spelled so; -1: there is none


class TokenBytes:
    """`spelled`: the bytes and the id of every ordinary token. Never changes."""

    def __init__(self, spelled: Iterable[tuple[bytes, int]]) -> None:
        pairs = sorted(spelled)
        self._spelled = [text for text, _ in pairs]
        self._ids = array("i", (token for _, token in pairs))
        self.longest = max(map(len, self._spelled), default=0)
        self._whole = dict(reversed(pairs))  # of texts that several tokens have the first
        self._beyond: dict[bytes, Beyond] = {}  # the one that was asked for last is the last

    def begin_with(self, text: bytes) -> memoryview:
        """Ids of the tokens whose bytes begin with `text`, those that are equal to it among them. int32"""
        start, stop = self._range(text)
        return memoryview(self._ids)[start:stop]

    def beyond(self, text: bytes) -> Beyond:
        """Of each of `begin_with(text)`."""
        found = self._beyond.pop(text, None)
        if found is None:
            start, stop = self._range(text)
            texts = [spelled[len(text) :] for spelled in self._spelled[start:stop]]
            found = Beyond(texts, array("i", (self._whole.get(each, -1) for each in texts)))
            while len(self._beyond) >= MAX_BEYOND:
                del self._beyond[next(iter(self._beyond))]
        self._beyond[text] = found
        return found

    def parts(self, text: bytes) -> list[tuple[bytes, int]] | None:
        """Tokens and bytes of each, `text` together: one for each byte if there are; None: nothing spells it."""
        ids = [self._whole.get(text[i : i + 1]) for i in range(len(text))]
        if None not in ids:
            return [(text[i : i + 1], token) for i, token in enumerate(ids) if token is not None]
        spelled = self.spell(text)
        return None if spelled is None else [(self._spelled[self._ids.index(token)], token) for token in spelled]

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
