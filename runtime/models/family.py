"""What a model family is: how its config is read, which block its layers are, and how its weights are named.

A family's file holds one `FAMILY`; docs/models.md says how to add one.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.weight_map import WeightMap, usual_weights


@dataclass(frozen=True, slots=True)
class Family:
    read_shape: Callable[[ConfigObject], ModelShape]
    decoder: type[Decoder] = Decoder
    weights: Callable[[ModelShape], WeightMap] = usual_weights
    harmless: Collection[str] = ()  # keys of its configs that change nothing and that other families do not have
