"""Whether the weights of a model folder would be loaded: names and shapes by the headers, numbers one weight at a time.

Asks the code of a start, of models on the meta device, so the model is never in memory whole. Knows no machine: whether
a model fits into one is not asked here.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.runtime.models.registry import family_of, weights_of
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.towers.registry import has_tower, tower_of
from ramet.runtime.models.transformers.implementation import read_model
from ramet.runtime.weights.containers import opened
from ramet.runtime.weights.files import check_numbers, check_weights
from ramet.runtime.weights.heads import load_heads
from ramet.runtime.weights.sound import copy_weights


def check_folder(folder: Path) -> None:
    """Raises ConfigError that says what a start would say of config.json and the weights."""
    shape = read_model(folder, "", "auto")
    dtype = getattr(torch, shape.dtype)
    check_headers(folder, shape, dtype)
    if shape.of_transformers:
        _check_numbers(folder, dtype, "")
        return
    with torch.device("meta"):
        model = family_of(shape.architecture).decoder(shape, dtype, reference)
    check_numbers(model, folder)
    load_heads(folder, shape)
    if has_tower(shape):
        from ramet.runtime.models.towers.base import check_tower  # loads transformers

        own = weights_of(shape).ignored
        check_tower(tower_of(shape), folder, "", dtype, _outlines(folder, own))
        _check_numbers(folder, dtype, own)


def check_headers(folder: Path, shape: ModelShape, dtype: torch.dtype) -> None:
    """Whether every tensor is there in its shape. Raises ConfigError."""
    if shape.of_transformers:
        from ramet.runtime.models.transformers.build import check_tensors  # loads transformers

        check_tensors(shape, dtype, _outlines(folder, ""))
        return
    with torch.device("meta"):
        check_weights(family_of(shape.architecture).decoder(shape, dtype, reference), folder)


def _outlines(folder: Path, prefixes: str | tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
    """Tensors without numbers."""
    for name, fact in opened(folder).facts():
        if name.startswith(prefixes):
            yield name, torch.empty(fact.shape, dtype=fact.dtype, device="meta")


def _check_numbers(folder: Path, dtype: torch.dtype, prefixes: str | tuple[str, ...]) -> None:
    """Whether each is finite in `dtype`. Raises ConfigError."""
    checkpoint = opened(folder, mapped=True)
    for name, tensor in checkpoint.tensors(dtype):
        if name.startswith(prefixes) and tensor.is_floating_point() and tensor.numel():
            rows = tensor.reshape(1) if tensor.ndim == 0 else tensor
            copy_weights(torch.empty(rows.shape, dtype=dtype), rows, f"{checkpoint.place}: tensor {name}")
