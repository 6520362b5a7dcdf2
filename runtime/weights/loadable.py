"""Checks that a model folder's weights would load: names and shapes by the headers, numbers one weight at a time.

Uses the code that loads a model, but with models on the meta device, so the whole model is never in memory. Does not
check whether the model fits into a machine.
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
    """Raises the ConfigError that starting a server would raise for config.json and the weights."""
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
    """Raises ConfigError if a tensor is missing or has the wrong shape."""
    if shape.of_transformers:
        from ramet.runtime.models.transformers.build import check_tensors  # loads transformers

        check_tensors(shape, dtype, _outlines(folder, ""))
        return
    with torch.device("meta"):
        check_weights(family_of(shape.architecture).decoder(shape, dtype, reference), folder)


def _outlines(folder: Path, prefixes: str | tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
    """The tensors with these prefixes, on the meta device."""
    for name, fact in opened(folder).facts():
        if name.startswith(prefixes):
            yield name, torch.empty(fact.shape, dtype=fact.dtype, device="meta")


def _check_numbers(folder: Path, dtype: torch.dtype, prefixes: str | tuple[str, ...]) -> None:
    """Raises ConfigError if a number is not finite in `dtype`."""
    checkpoint = opened(folder, mapped=True)
    for name, tensor in checkpoint.tensors(dtype):
        if name.startswith(prefixes) and tensor.is_floating_point() and tensor.numel():
            rows = tensor.reshape(1) if tensor.ndim == 0 else tensor
            copy_weights(torch.empty(rows.shape, dtype=dtype), rows, f"{checkpoint.place}: tensor {name}")
