"""Media that a hash can see: the features of a piece are numbers which no token has, so a wrong one shows."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from delayed_runner import DelayedRunner
from hash_runner import HashRunner

from ramet.ipc.media import MediaKind, MediaToken, PlacedMedia, Prepared
from ramet.runtime.engine.extras import FeatureRows, Features

TOKENS = {MediaKind.IMAGE: MediaToken("<image>", "<image>", 90), MediaKind.VIDEO: MediaToken("<film>", "<film>", 91)}
Prompt = Sequence[int | Prepared]  # token ids, and pieces of media


def piece(content: int, *spans: int, kind: MediaKind = MediaKind.IMAGE, broken: bool = False) -> Prepared:
    """Of so many tokens; between two spans stands token 89."""
    expansion: list[str | int] = []
    for num in spans:
        expansion += [num] if not expansion else ["-", num]
    key = hashlib.sha256(repr((content, spans, kind)).encode()).digest()
    return Prepared(kind, key, tuple(expansion), (), "broken" if broken else str(content), place="image_data[0]")


def values(item: Prepared) -> np.ndarray:
    """[n] int32, of each token one."""
    first = 1000 + int.from_bytes(item.key[:3], "little") % 100_000 * 100
    return np.arange(first, first + item.num_tokens, dtype=np.int32)


def laid_out(prompt: Prompt) -> tuple[list[int], tuple[PlacedMedia, ...], list[int]]:
    """Ids, where the pieces are among them, and what a model reads in their place."""
    ids, placed, read = list[int](), list[PlacedMedia](), list[int]()
    for part in prompt:
        if isinstance(part, int):
            ids.append(part)
            read.append(part)
            continue
        spans, seen = [], values(part).tolist()
        for each in part.expansion:
            if isinstance(each, str):
                ids.append(89)
                read.append(89)
            else:
                spans.append((len(ids), each))
                ids += [TOKENS[part.kind].id] * each
                read += [seen.pop(0) for _ in range(each)]
        placed.append(PlacedMedia(part, tuple(spans)))
    return ids, tuple(placed), read


class SeenMedia:
    """Keeps the features of the last `room` pieces."""

    tokens = TOKENS

    def __init__(self, room: int, is_whole: bool = False) -> None:
        self.is_whole, self._room = is_whole, room
        self._kept: dict[bytes, Features] = {}
        self.computed: Counter[bytes] = Counter()
        self.max_tokens = 0  # of one call
        self._ends: dict[int, set[int]] = {}  # of each span, by the first number of the piece

    def check(self, rows: FeatureRows) -> None:
        """That no step ends inside a span whose tokens see each other."""
        if self.is_whole:
            assert rows.start + rows.num in self._ends[int(rows.features.values[0])], "a span is cut"

    @property
    def num_bytes(self) -> int:
        return sum(each.num_bytes for each in self._kept.values())

    def find(self, key: bytes) -> Features | None:
        return self._kept.get(key)

    def compute(self, items: Sequence[Prepared]) -> list[Features | str]:
        self.max_tokens = max(self.max_tokens, sum(item.num_tokens for item in items))
        return [self._compute(item) for item in items]

    def _compute(self, item: Prepared) -> Features | str:
        self.computed[item.key] += 1
        if item.file == "broken":
            return "could not be computed: it is broken"
        made = Features(values(item))
        self._ends[int(made.values[0])] = set(accumulate(n for n in item.expansion if isinstance(n, int)))
        self._kept[item.key] = made
        while len(self._kept) > self._room:
            del self._kept[next(iter(self._kept))]
        return made


def _runner(kind: Any, media: SeenMedia, *sizes: int) -> Any:
    runner = kind(*sizes)
    runner.media = media
    return runner


def runners_with(media: SeenMedia, kinds: tuple[Any, Any] = (HashRunner, DelayedRunner)) -> Any:
    """As BenchTop takes them."""
    return tuple(partial(_runner, kind, media) for kind in kinds)
