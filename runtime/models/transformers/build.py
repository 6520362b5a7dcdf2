"""A model of transformers' modules for a shape that was read of its config.json: without memory, loaded or random."""

import json
from collections.abc import Iterable

import torch
from torch import Tensor
from transformers.initialization import no_init_weights

from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.transformers.classes import made_of
from ramet.runtime.models.transformers.facts import facts_of
from ramet.runtime.models.transformers.interface import ATTENTION
from ramet.runtime.models.transformers.loading import check_part, load_causal, random_causal
from ramet.runtime.models.transformers.model import TransformersModel

PLACE = "config.json"


def empty_model(shape: ModelShape, dtype: torch.dtype, ops: Ops) -> TransformersModel:
    """On the meta device."""
    model_class, config = made_of(json.loads(shape.of_transformers), PLACE)
    config._attn_implementation, config._experts_implementation = ATTENTION, "eager"
    with torch.device("meta"), no_init_weights():
        causal = model_class(config).to(dtype).eval()
    return TransformersModel(causal, facts_of(shape.of_transformers), shape, ops)


def loaded_model(
    shape: ModelShape,
    dtype: torch.dtype,
    device: torch.device,
    ops: Ops,
    tensors: Iterable[tuple[str, Tensor]] | int,
) -> TransformersModel:
    """`tensors` of a checkpoint, or the seed of random weights."""
    model_class, config = made_of(json.loads(shape.of_transformers), PLACE)
    if isinstance(tensors, int):
        causal = random_causal(model_class, config, ATTENTION, dtype, tensors)
    else:
        causal = load_causal(model_class, config, ATTENTION, tensors, dtype)
    return TransformersModel(causal.to(device), facts_of(shape.of_transformers), shape, ops)


def check_tensors(shape: ModelShape, dtype: torch.dtype, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Whether `loaded_model` would take the names and shapes of `tensors`, on the meta device. Raises ConfigError."""
    model_class, config = made_of(json.loads(shape.of_transformers), PLACE)
    check_part(model_class, config, ATTENTION, tensors, dtype)
