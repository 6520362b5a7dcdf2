"""The tower of a model that takes media, loaded beside it. Decides which tensors of the checkpoint are the tower's."""

from typing import Any

import torch

from ramet.runtime.config import Args
from ramet.runtime.engine.features import Media
from ramet.runtime.engine.startup import dummy_seed
from ramet.runtime.media.formats.registry import format_of
from ramet.runtime.models.registry import weights_of
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.towers.registry import has_tower, tower_of
from ramet.runtime.weights.containers import opened


def load_media(
    args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device, num_threads: int
) -> Media | None:
    """None: the model takes texts alone. Raises ConfigError."""
    found = format_of(args.model_folder) if has_tower(shape) else None
    if found is None:
        return None
    tower, max_bytes = tower_for(args, shape, dtype, device), int(args.media.media_cache_mb * (1 << 20))
    return Media(tower, found.tokens, max_bytes, found.is_whole, num_threads)


def tower_for(args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> Any:
    """See runtime/models/towers/base.py. Raises ConfigError."""
    from ramet.runtime.models.towers.base import load_tower  # loads transformers

    seed, own = dummy_seed(args), weights_of(shape).ignored
    tensors = opened(args.model_folder, mapped=True).tensors(dtype) if seed is None else ()
    given = ((name, tensor) for name, tensor in tensors if name.startswith(own))
    overrides = args.model.json_model_override_args
    source = given if seed is None else seed
    return load_tower(tower_of(shape), args.model_folder, overrides, dtype, device, source)
