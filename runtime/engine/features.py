"""Features of media: what towers have made of them, kept on the host as long as there is room, by content.

Decides how many pieces a tower computes at once, and which features are kept: those that were asked for last. What a
request holds it keeps alive by itself. Knows no request and no step. n tokens of a piece, N hidden size.
"""

import logging
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ramet.ipc.media import MediaTokens, Prepared
from ramet.runtime.engine.extras import Features
from ramet.runtime.errors import describe

log = logging.getLogger("ramet")


class FeatureCache:
    """At most `most` bytes of features, those that were asked for longest ago go first."""

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self._features: OrderedDict[bytes, Features] = OrderedDict()

    def __len__(self) -> int:
        return len(self._features)

    def find(self, key: bytes) -> Features | None:
        found = self._features.get(key)
        if found is not None:
            self._features.move_to_end(key)
        return found

    def keep(self, key: bytes, features: Features) -> None:
        self._drop(key)
        self._features[key] = features
        self.size += features.num_bytes
        while self.size > self.most:
            self._drop(next(iter(self._features)))

    def clear(self) -> None:
        self._features.clear()
        self.size = 0

    def _drop(self, key: bytes) -> None:
        gone = self._features.pop(key, None)
        if gone is not None:
            self.size -= gone.num_bytes


class Media:
    """`tower`: see runtime/models/towers/base.py; torch computes it with `num_threads` on a CPU."""

    def __init__(
        self, tower: Any, tokens: MediaTokens, max_bytes: int, is_whole: bool = False, num_threads: int = 1
    ) -> None:
        self._tower, self.tokens, self.is_whole = tower, tokens, is_whole
        self._num_threads = num_threads
        self._cache = FeatureCache(max_bytes)

    def find(self, key: bytes) -> Features | None:
        return self._cache.find(key)

    def take(self, tower: Any) -> None:
        """Of other weights: what was computed is kept no longer."""
        self._tower = tower
        self._cache.clear()

    def let_go(self) -> None:
        """Of the tower's weights, until `take`."""
        self._tower = self._tower.to("meta")

    @property
    def num_bytes(self) -> int:
        """Of features that are kept."""
        return self._cache.size

    @torch.inference_mode()
    def compute(self, items: Sequence[Prepared]) -> list[Features | str]:
        """Of each, or why there are none. Pieces whose arrays have the same names are computed at once."""
        done: list[Features | str] = []
        with torch_threads(self._num_threads), float32_convolutions():
            for group in _alike(items):
                done += self._compute(group)
        return done

    def _compute(self, group: Sequence[Prepared]) -> Iterator[Features | str]:
        if len(group) > 1:
            try:
                yield from self._run(group)
                return
            except Exception as error:  # noqa: BLE001 - of one of them, which is found out below
                log.warning("a tower could not read %d pieces at once: %s", len(group), describe(error))
            for item in group:
                yield from self._compute([item])
            return
        try:
            yield from self._run(group)
        except FileNotFoundError:
            yield "is gone, because its request has ended"
        except Exception as error:
            log.exception("a tower could not read one %s", group[0].kind.value)
            yield f"could not be computed: {describe(error)}"

    def _run(self, group: Sequence[Prepared]) -> list[Features]:
        pieces = [arrays_of(item) for item in group]
        if group[0].are_features:
            made = [next(iter(arrays.values())) for arrays in pieces]
        else:
            made = self._tower.features(group[0].kind, pieces)
        out = []
        for item, values in zip(group, made, strict=True):
            if values.shape != (item.num_tokens, self._tower.width):
                needed = [item.num_tokens, self._tower.width]
                raise ValueError(f"the features are {list(values.shape)}, must be {needed}")
            own = values.to(device="cpu", dtype=self._tower.dtype, copy=True)
            if not bool(own.isfinite().all()):
                raise ValueError("the features are not all finite")
            features = Features(own)
            self._cache.keep(item.key, features)
            out.append(features)
        return out


@contextmanager
def torch_threads(num: int) -> Iterator[None]:
    """Elsewhere torch may have fewer, where its threads would spin beside those of our kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(num)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def float32_convolutions() -> Iterator[None]:
    """cuDNN would round what it multiplies to 10 bits, which no product of matrices does here."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _alike(items: Sequence[Prepared]) -> Iterator[list[Prepared]]:
    """Neighbours that a tower can read at once."""
    group: list[Prepared] = []
    for item in items:
        if group and _form(group[0]) != _form(item):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _form(item: Prepared) -> tuple[object, ...]:
    return item.kind, item.are_features, tuple((each.name, each.dtype) for each in item.arrays)


def arrays_of(item: Prepared) -> dict[str, Tensor]:
    """What a processor has written; mapped, so that a page is read when it is needed. Raises OSError."""
    with open(item.file, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    found = {}
    for each in item.arrays:
        count = int(np.prod(each.shape))
        values = np.frombuffer(data, np.dtype(each.dtype), count, each.offset).reshape(each.shape)
        found[each.name] = torch.from_numpy(values)
    return found
