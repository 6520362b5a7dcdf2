"""The tower of a model that takes media, loaded beside it. Decides which tensors of the checkpoint are the tower's."""

import torch

from ramet.runtime.config import Args
from ramet.runtime.engine.features import Media
from ramet.runtime.engine.startup import dummy_seed
from ramet.runtime.media.formats.registry import format_of
from ramet.runtime.models.registry import weights_of
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.towers.registry import TOWERS, tower_of
from ramet.runtime.weights.containers import opened


def has_tower(shape: ModelShape) -> bool:
    return not shape.of_transformers and _class_of(shape) in TOWERS


def _class_of(shape: ModelShape) -> str:
    """That of the whole model."""
    return shape.composite or shape.architecture


def load_media(
    args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device, most_bytes: int
) -> Media | None:
    """None: the model takes texts alone. `most_bytes`: of features that are kept. Raises ConfigError."""
    found = format_of(args.model_folder) if has_tower(shape) else None
    if found is None:
        return None
    from ramet.runtime.models.towers.base import load_tower  # loads transformers

    seed, own = dummy_seed(args), weights_of(shape).ignored
    tensors = opened(args.model_folder, mapped=True).tensors(dtype) if seed is None else ()
    given = ((name, tensor) for name, tensor in tensors if name.startswith(own))
    overrides = args.model.json_model_override_args
    tower = load_tower(
        tower_of(_class_of(shape)), args.model_folder, overrides, dtype, device, given if seed is None else seed
    )
    return Media(tower, found.tokens, most_bytes, found.is_whole)
