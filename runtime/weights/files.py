"""Weights from a Hugging Face folder into a model, one tensor at a time, shard by shard.

Decides which files are read and what is an error: a tensor that is missing, unknown, of another shape or no weight
(sound.py) is named. Peak memory is the model and one tensor: files are mapped, not read whole.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ramet.kernels.reference_weights import Int4Weight
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import WordsPacker
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import family_of
from ramet.runtime.weights.bundle import TensorFacts
from ramet.runtime.weights.names import Part, checkpoint_parts, is_ignored
from ramet.runtime.weights.quantised import QuantisedLayers
from ramet.runtime.weights.sound import check_dtype, copy_weights
from ramet.runtime.weights.staging import Staging
from ramet.runtime.weights.widening import Widening

EMBEDDING = "embed.weight"
DTYPES = {  # as a safetensors header names them
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu, "BF16": torch.bfloat16, "F16": torch.float16,
    "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
}  # fmt: skip
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def load_weights(model: Decoder, folder: Path, packer: WordsPacker = Int4Weight.of_words) -> None:
    """Fill every parameter (already on its device, in its dtype) from `folder`; what is there in 4 bits is packed."""
    weights = family_of(model.shape.architecture).weights(model.shape)
    facts = {weights.canonical(name): fact for name, fact in tensor_facts(folder)}
    facts = {name: fact for name, fact in facts.items() if not is_ignored(name, weights)}
    quantised = QuantisedLayers(model, facts, weights, packer, folder)
    parameters = {name: parameter.data for name, parameter in model.named_parameters()}
    wanted = checkpoint_parts(((name, len(tensor)) for name, tensor in parameters.items()), weights)
    second_head = f"{weights.top['head']}.weight" if model.shape.tied_head else None
    staging = None if parameters[EMBEDDING].device.type == "cpu" else Staging()
    widening = Widening(folder, facts, parameters[EMBEDDING].dtype, quantised.missing)
    widening.note(folder)
    with torch.inference_mode():
        for path, source, tensor in tensors(folder):
            name = weights.canonical(source)
            if quantised.take(name, tensor, f"{path}: tensor {source}") or is_ignored(name, weights):
                continue
            whole = widening.take(name, tensor)
            if whole is None:
                continue
            source, (name, tensor) = source if whole[0] == name else whole[0], whole
            if name == second_head:  # it must be the embedding once more: transformers unties a head that differs
                wanted[name] = Part(name, 0, len(tensor))
                parameters[name] = torch.empty_like(parameters[EMBEDDING])
            if name not in wanted:
                raise ConfigError(
                    f"{path}: tensor {source} does not belong to a {model.shape.architecture} of this config"
                )
            _copy(tensor, wanted.pop(name), parameters, f"{path}: tensor {source}", staging)
    if missing := sorted([*wanted, *quantised.missing]):
        raise ConfigError(f"{folder}: {len(missing)} tensors are missing, among them {', '.join(missing[:3])}")
    if second_head in parameters and not torch.equal(parameters[second_head], parameters[EMBEDDING]):
        raise ConfigError(
            f"{folder}: tensor {second_head} differs from the embedding, though config.json ties them; if both are "
            "meant, add --json-model-override-args '{\"tie_word_embeddings\": false}'"
        )


def _copy(tensor: Tensor, part: Part, parameters: dict[str, Tensor], named: str, staging: Staging | None) -> None:
    """WRITES the part of its parameter."""
    check_dtype(tensor, named)
    target = parameters[part.name][part.start : part.start + part.rows]
    if tensor.shape != target.shape:
        raise ConfigError(f"{named} is {list(tensor.shape)}, config.json asks for {list(target.shape)}")
    copy_weights(target, tensor if part.pairs is None else part.pairs.apart(tensor), named, staging)


def tensors(folder: Path) -> Iterator[tuple[Path, str, Tensor]]:
    """Every (file, name, tensor) of the checkpoint."""
    for path in shards(folder):
        with _opened(path) as shard:
            for name in shard.keys():  # noqa: SIM118  (not a mapping)
                yield path, name, shard.get_tensor(name)


def tensor_facts(folder: Path) -> Iterator[tuple[str, TensorFacts]]:
    """As `tensors`, of the files' headers alone."""
    for path in shards(folder):
        with _opened(path) as shard:
            for name in shard.keys():  # noqa: SIM118  (not a mapping)
                part = shard.get_slice(name)
                yield name, TensorFacts(tuple(part.get_shape()), dtype_of(part.get_dtype(), f"{path}: tensor {name}"))


def dtype_of(name: str, named: str) -> torch.dtype:
    """Raises ConfigError for what torch has no dtype for."""
    if name not in DTYPES:
        raise ConfigError(f"{named} is {name}, must be one of {', '.join(DTYPES)}")
    return DTYPES[name]


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as shard:
            yield shard
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} is not a readable safetensors file: {error}") from error


def shards(folder: Path) -> list[Path]:
    """The files of the checkpoint: those its index names, or the single one."""
    index = folder / INDEX
    if not index.is_file():
        if not (folder / SINGLE).is_file():
            raise ConfigError(f"{folder} has neither {SINGLE} nor {INDEX}: --load-format dummy needs config.json alone")
        return [folder / SINGLE]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{index} is not a safetensors index: {error}") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"{index} names files that are not there: {', '.join(missing)}")
    return [folder / name for name in names]
