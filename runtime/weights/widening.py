"""Weights of a checkpoint that no kernel here reads in their format: widened while they are loaded.

Decides by the names of tensors which format a weight is in; what a format means is in a module for each. Knows no
model, so that a checkpoint can be widened without one.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import torch
from torch import Tensor

from ramet.runtime.errors import ConfigError
from ramet.runtime.weights import mxfp4
from ramet.runtime.weights.bundle import Bundle, Facts, dtype_name

log = logging.getLogger("ramet")

ENDINGS: dict[str, Callable[[str, Facts], Bundle]] = {  # of the tensor that tells a format
    mxfp4.BLOCKS: mxfp4.bundle,
}


class Widening:
    """Of all weights but those that have a tensor which is `taken` elsewhere. They come out in `dtype`.

    Raises ConfigError for one that is not whole, or whose tensors do not fit one another.
    """

    def __init__(self, place: Path, facts: Facts, dtype: torch.dtype, taken: Collection[str] = ()) -> None:
        self._dtype, self._taken = dtype, frozenset(taken)
        self._of_part: dict[str, tuple[Bundle, str]] = {}
        try:
            self.bundles = list(self._found(facts))
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        for bundle in self.bundles:
            self._of_part |= {name: (bundle, kind) for kind, name in bundle.names.items()}

    def _found(self, facts: Facts) -> Iterator[Bundle]:
        for name in facts:
            ending = next((ending for ending in ENDINGS if name.endswith(ending)), None)
            if ending is not None and name not in self._taken:
                yield ENDINGS[ending](name.removesuffix(ending), facts)

    def note(self, place: Path) -> None:
        """In the log, if there is anything to widen."""
        for name, num in Counter(bundle.format for bundle in self.bundles).items():
            log.warning("%s: %d weights in %s are widened to %s", place, num, name, dtype_name(self._dtype))

    def take(self, name: str, tensor: Tensor) -> tuple[str, Tensor] | None:
        """A tensor of no bundle as it is, or the weight that is whole with this one. None: more of it must come."""
        if name not in self._of_part:
            return name, tensor
        bundle, kind = self._of_part[name]
        weight = bundle.add(kind, tensor, self._dtype)
        return None if weight is None else (bundle.weight, weight)
