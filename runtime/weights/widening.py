"""Weights of a checkpoint that no kernel here reads in their format: widened while they are loaded.

Decides by the names of tensors which format a weight is in; what a format means is in a module for each. Knows no
model, so that a checkpoint can be widened without one.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

import torch
from torch import Tensor

from ramet.runtime.models.shape import CheckpointQuantization
from ramet.runtime.weights import four_bits, mxfp4, packed_ints, scaled
from ramet.runtime.weights.bundle import Bundle, Facts, dtype_name

log = logging.getLogger("ramet")

Maker = Callable[[str, Facts, CheckpointQuantization], Bundle]
MAKERS: dict[str, Maker] = {  # ending of the tensor that tells a format; the first match counts
    mxfp4.BLOCKS: mxfp4.bundle,
    four_bits.WORDS: four_bits.bundle,
    packed_ints.PACKED: packed_ints.bundle,
    scaled.INVERSE_SCALE: scaled.bundle,
    scaled.SCALE: scaled.bundle,
}


def bundles_of(names: Iterable[str], facts: Facts, quantization: CheckpointQuantization | None) -> Iterator[Bundle]:
    """Those that one of the names tells. Raises ConfigError for one that is not whole, or whose tensors do not fit."""
    if quantization is None:
        return
    for name in names:
        ending = next((ending for ending in MAKERS if name.endswith(ending)), None)
        if ending is None:
            continue
        stem = name.removesuffix(ending)
        if ending != scaled.SCALE or stem + packed_ints.PACKED not in facts:  # that one tells already
            yield MAKERS[ending](stem, facts, quantization)


class Widening:
    """Weights that come out in `dtype` when all their tensors are there."""

    def __init__(self, bundles: Collection[Bundle], dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._of_part = {name: (bundle, kind) for bundle in bundles for kind, name in bundle.names.items()}
        for format, num in Counter(bundle.format for bundle in bundles).items():
            log.warning("%d weights in %s are widened to %s", num, format, dtype_name(dtype))

    def take(self, name: str, tensor: Tensor) -> tuple[str, Tensor] | None:
        """A tensor of no bundle as it is, or the weight that is whole with this one. None: more of it must come."""
        if name not in self._of_part:
            return name, tensor
        bundle, kind = self._of_part.pop(name)
        bundle.parts[kind] = tensor
        return (bundle.weight, bundle.widened(self._dtype)) if bundle.is_whole else None
