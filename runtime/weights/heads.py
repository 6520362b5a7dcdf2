"""The layers behind one pooled state: a classifier's, from the checkpoint, and a sentence-transformers folder's.

Decides their names and refuses what does not fit. They are small, so they stay float32 on the host, whatever the model
is. Which modules a folder has is text/pooling.py's. N hidden size, M numbers of a layer.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ramet.ipc.spec import PoolingTask
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.text.files import read_json
from ramet.runtime.text.pooling import modules_of
from ramet.runtime.weights.containers import opened
from ramet.runtime.weights.random import fill
from ramet.runtime.weights.safetensors_file import open_safetensors

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {  # by the name of the class, as torch has it
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "Sigmoid": torch.sigmoid,
    "GELU": nn.functional.gelu,
    "SiLU": nn.functional.silu,
}
PICKLE, SINGLE = "pytorch_model.bin", "model.safetensors"


@dataclass(frozen=True, slots=True)
class Dense:
    weight: Tensor  # [M, N] float32
    bias: Tensor | None  # [M] float32
    activation: str = "Identity"

    def __call__(self, states: Tensor) -> Tensor:
        """states [n, N] float32 -> [n, M]"""
        return ACTIVATIONS[self.activation](nn.functional.linear(states, self.weight, self.bias))


Heads = Mapping[PoolingTask, tuple[Dense, ...]]


def load_heads(folder: Path, shape: ModelShape, dummy_seed: int | None = None) -> Heads:
    """Raises ConfigError. `dummy_seed`: a classifier's layers are random, because no checkpoint is read."""
    heads: dict[PoolingTask, tuple[Dense, ...]] = {}
    if shape.num_labels:
        given = _dummy(shape, dummy_seed) if dummy_seed is not None else dict(_score_tensors(folder))
        heads[PoolingTask.CLASSIFY] = _classifier(given, shape, folder)
    if dense := tuple(_dense_layers(folder, shape.hidden)):
        heads[PoolingTask.EMBED] = dense
    return heads


def _dummy(shape: ModelShape, seed: int) -> dict[str, Tensor]:
    weight = torch.empty(shape.num_labels, shape.hidden)
    fill("score.weight", weight, seed)
    return {"score.weight": weight}


def _classifier(given: dict[str, Tensor], shape: ModelShape, folder: Path) -> tuple[Dense, ...]:
    """One layer; or several, numbered with the ReLUs between them."""
    names = sorted({name.rpartition(".")[0] for name in given})
    if names not in (["score"], ["score.0", "score.2"]):
        found = ", ".join(sorted(given)) or "none"
        raise ConfigError(f"{folder}: a classifier has score.weight, or score.0 and score.2; the tensors here: {found}")
    layers, width = list[Dense](), shape.hidden
    for name in names:
        is_last = name == names[-1]
        rows = shape.num_labels if is_last else width
        weight = _fitting(given, f"{name}.weight", (rows, width), f"{folder}")
        bias = _fitting(given, f"{name}.bias", (rows,), f"{folder}") if f"{name}.bias" in given else None
        layers.append(Dense(weight, bias, "Identity" if is_last else "ReLU"))
        width = rows
    return tuple(layers)


def _score_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    for path in opened(folder).files:
        yield from _tensors(path, "score.")


def _dense_layers(folder: Path, width: int) -> Iterator[Dense]:
    """In the order of modules.json."""
    for module in modules_of(folder, "Dense"):
        place = folder / str(module.get("path", ""))
        config = read_json(place / "config.json")
        at = f"{place / 'config.json'}"
        if _count(config, "in_features", at) != width:
            raise ConfigError(f"{at}: in_features is {config['in_features']}, must be {width}, what comes before it")
        rows, activation = _count(config, "out_features", at), str(config.get("activation_function", "torch.nn.Tanh"))
        kind = activation.rpartition(".")[2]
        if kind not in ACTIVATIONS:
            raise ConfigError(f"{at}: activation_function is {activation}, must be one of {', '.join(ACTIVATIONS)}")
        if not (place / SINGLE).is_file():
            hint = f"{PICKLE} is a pickle: write its tensors with safetensors" if (place / PICKLE).is_file() else ""
            raise ConfigError(f"{place} has no {SINGLE}. {hint}".rstrip(". "))
        given = dict(_tensors(place / SINGLE, "linear."))
        weight = _fitting(given, "linear.weight", (rows, width), f"{place / SINGLE}")
        has_bias = bool(config.get("bias", True))
        bias = _fitting(given, "linear.bias", (rows,), f"{place / SINGLE}") if has_bias else None
        yield Dense(weight, bias, kind)
        width = rows


def _count(config: dict[str, Any], name: str, at: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{at}: {name} is {json.dumps(value)}, must be an integer >= 1")
    return value


def _tensors(path: Path, prefix: str) -> Iterator[tuple[str, Tensor]]:
    with open_safetensors(path) as file:
        for name in file.entries:
            if name.startswith(prefix):
                yield name, file.tensor(name)


def _fitting(given: dict[str, Tensor], name: str, shape: tuple[int, ...], place: str) -> Tensor:
    """As float32."""
    tensor = given.get(name)
    if tensor is None:
        raise ConfigError(f"{place}: tensor {name} is missing")
    if tuple(tensor.shape) != shape:
        raise ConfigError(f"{place}: tensor {name} is {list(tensor.shape)}, must be {list(shape)}")
    if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
        raise ConfigError(f"{place}: tensor {name} is not a weight: it holds {tensor.dtype} or what is not finite")
    return tensor.float()
