"""Which layers of a model adapters can change, by the names that its checkpoint has for them."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ramet.kernels import reference
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import Embedding, Linear
from ramet.runtime.models.registry import family_of, weights_of
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.weight_map import Pairs, WeightMap, WeightParts
from ramet.runtime.weights.names import checkpoint_parts

HEAD, EMBEDDING = "head", "embed"


@dataclass(frozen=True, slots=True)
class Target:
    """Columns [first, first + num_out) of a layer's outputs, which are one layer of the checkpoint."""

    module: str  # ours; HEAD also where it is tied
    first: int
    num_out: int
    num_in: int
    pairs: Pairs | WeightParts | None = None  # in whose order the checkpoint has the outputs

    @property
    def by_rows(self) -> bool:
        """It is the embedding, of num_in numbers each: num_out tokens."""
        return self.module == EMBEDDING


@dataclass(frozen=True, slots=True)
class Targets:
    architecture: str
    weights: WeightMap
    by_name: Mapping[str, Target]  # by the checkpoint's name of a module

    def find(self, module: str) -> Target | None:
        """`module` as files of this checkpoint name it."""
        return self.by_name.get(self.weights.canonical(f"{module}.weight").removesuffix(".weight"))


def is_left_out(module: str) -> bool:
    """A layer of one expert, to which only some tokens go, or of latents, of which others are made; `module` is our
    name of it.
    """
    return module.rpartition(".")[0].endswith(".layers") or module.endswith(".attention.kv_b")


def targets_of(shape: ModelShape) -> Targets:
    """Raises ConfigError for a model of transformers' modules."""
    if shape.of_transformers:
        raise ConfigError(f"adapters of a {shape.architecture} are not built: it is served by transformers' modules")
    family = family_of(shape.architecture)
    with torch.device("meta"):
        model = family.decoder(shape, torch.float32, reference)
    weights = weights_of(shape)
    found = {
        f"{name}.weight": module.weight.shape
        for name, module in model.named_modules()
        if isinstance(module, Linear | Embedding) and module.weight is not None and not is_left_out(name)
    }
    parts = checkpoint_parts(((name, sizes[0]) for name, sizes in found.items()), weights)
    by_name = {
        source.removesuffix(".weight"): Target(
            part.name.removesuffix(".weight"), part.start, part.rows, found[part.name][1], part.pairs
        )
        for source, part in parts.items()
    }
    if shape.tied_head:
        by_name[weights.top[HEAD]] = Target(HEAD, 0, *found[f"{EMBEDDING}.weight"])
    return Targets(shape.architecture, weights, by_name)
