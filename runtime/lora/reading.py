"""An adapter's folder as PEFT saves it, to what it changes in each layer.

Decides which tensors mean what, and what is an error: one that belongs to no layer, is alone, has another shape, or
asks what is not built is named. A, B: the two factors of a low-rank change. N in, M out, V vocabulary, R rank.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from ramet.kernels.stacked_adapters import Change, Changes, LowRank, WholeWeight
from ramet.runtime.errors import ConfigError
from ramet.runtime.lora.config import AdapterConfig, read_config
from ramet.runtime.lora.targets import Target, Targets
from ramet.runtime.weights.safetensors_file import SafetensorsFile, open_safetensors
from ramet.runtime.weights.sound import check_dtype, copy_weights

FILE, PICKLE = "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
A, B, WEIGHT, BIAS, BASE = "A", "B", "weight", "bias", "base"
KINDS = {  # how a tensor's name ends -> what it is; the first match counts
    ".lora_A.weight": A, ".lora_B.weight": B, ".lora_embedding_A": A, ".lora_embedding_B": B,
    ".base_layer.weight": BASE, ".modules_to_save.weight": WEIGHT, ".weight": WEIGHT, ".bias": BIAS,
}  # fmt: skip
UNBUILT = {  # parts of names -> why they are refused
    "lora_magnitude_vector": "scales whole columns (DoRA)",
    "lora_B.bias": "is a bias of its own (lora_bias)",
    "base_layer.bias": "changes a bias (bias: lora_only)",
    "token_adapter": "changes single tokens (trainable_token_indices)",
    ".experts": "changes experts",
}
BaseRows = Callable[[Target, Tensor], Tensor]  # rows [n] int64 of a layer's weight -> [n, N]
COMPARED = 64  # rows of a saved copy of the model's own weights


@dataclass(frozen=True, slots=True)
class ModelRows:
    """Of the model's own weights, as the file has them."""

    named: str
    target: Target
    at: Tensor  # [n] int64
    rows: Tensor  # [n, N]


@dataclass(frozen=True, slots=True)
class Adapter:
    changes: dict[str, Changes]  # by our names of layers
    model_rows: tuple[ModelRows, ...] = ()  # which `check_model_rows` has not compared yet

    @property
    def num_bytes(self) -> int:
        return sum(
            tensor.nbytes for changes in self.changes.values() for each in changes for tensor in tensors_of(each)
        )

    @property
    def rank(self) -> int:
        """The largest."""
        low = (each for changes in self.changes.values() for each in changes if isinstance(each, LowRank))
        return max((len(each.up) for each in low), default=0)


def tensors_of(change: Change) -> list[Tensor]:
    if isinstance(change, LowRank):
        return [change.down, change.up]
    return [change.weight] if change.bias is None else [change.weight, change.bias]


def moved(change: Change, device: torch.device) -> Change:
    if isinstance(change, LowRank):
        return LowRank(change.first, change.down.to(device), change.up.to(device))
    bias = None if change.bias is None else change.bias.to(device)
    return WholeWeight(change.first, change.weight.to(device), bias)


@dataclass(slots=True)
class _Module:
    """What the file has of one module of the checkpoint."""

    target: Target
    sources: dict[str, str] = field(default_factory=dict)  # names of tensors by KINDS
    names: dict[str, str] = field(default_factory=dict)  # for errors
    tensors: dict[str, Tensor] = field(default_factory=dict)


def read_adapter(folder: Path, targets: Targets, dtype: torch.dtype, max_rank: int) -> Adapter:
    """Its numbers in the model's `dtype`. Raises ConfigError that names the file and what is wrong there."""
    config, path = read_config(folder), folder / FILE
    if config.dora:
        raise ConfigError(f"{folder}: use_dora is true, which is not built: merge the adapter into the model")
    if not path.is_file():
        if (folder / PICKLE).is_file():
            raise ConfigError(
                f'{folder} has only {PICKLE}, a pickle, which is not read; to convert it: python -c "from peft import '
                f"AutoPeftModelForCausalLM as M; M.from_pretrained('{folder}').save_pretrained('{folder}')\""
            )
        raise ConfigError(f"{folder} has no {FILE}")
    found: dict[str, list[Change]] = {}
    model_rows: list[ModelRows] = []
    with open_safetensors(path) as file:
        for name, module in _modules(file, targets).items():
            module.tensors = {kind: file.tensor(source) for kind, source in module.sources.items()}
            if BASE in module.tensors:
                model_rows.append(_model_rows(module))
            change = _change(name, module, config, dtype, max_rank, path)
            if change is not None:
                found.setdefault(module.target.module, []).append(change)
            module.tensors.clear()
    if not found:
        raise ConfigError(f"{path} has no tensor that changes a layer of this {targets.architecture}")
    return Adapter({name: tuple(changes) for name, changes in found.items()}, tuple(model_rows))


def _modules(file: SafetensorsFile, targets: Targets) -> dict[str, _Module]:
    """By the checkpoint's names, without PREFIX. No tensor is read."""
    modules: dict[str, _Module] = {}
    for source, entry in file.entries.items():
        named = file.named(source)
        if reason := next((why for part, why in UNBUILT.items() if part in source), ""):
            raise ConfigError(f"{named} {reason}, which is not built")
        ending = next((each for each in KINDS if source.endswith(each)), "")
        module = source.removeprefix(PREFIX).removesuffix(ending)
        target = targets.find(module) if ending and source.startswith(PREFIX) else None
        if target is None:
            raise ConfigError(
                f"{named} belongs to no layer of a {targets.architecture} of this config that adapters change"
            )
        check_dtype(entry.dtype, named)
        kept = modules.setdefault(module, _Module(target))
        kept.sources[KINDS[ending]], kept.names[KINDS[ending]] = source, named
    return modules


def _change(
    name: str, module: _Module, config: AdapterConfig, dtype: torch.dtype, max_rank: int, path: Path
) -> Change | None:
    """None: the file has nothing of it but the model's own weights."""
    kinds = module.tensors.keys() - {BASE}
    if not kinds:
        return None
    if kinds == {A, B}:
        return _low_rank(name, module, config, dtype, max_rank)
    if kinds in ({WEIGHT}, {WEIGHT, BIAS}):
        return _whole(module, dtype)
    if kinds in ({A}, {B}):
        other = f"lora_{'B' if A in kinds else 'A'}"
        raise ConfigError(f"{path}: {name} has {next(iter(module.names.values()))} alone: its {other} is missing")
    raise ConfigError(f"{path}: {name} has {' and '.join(sorted(kinds))}, of which only some can be there together")


def _low_rank(name: str, module: _Module, config: AdapterConfig, dtype: torch.dtype, max_rank: int) -> LowRank:
    target, a, b = module.target, module.tensors[A], module.tensors[B]
    rank = config.rank_of(name)
    if rank > max_rank:
        raise ConfigError(f"{module.names[A]} has rank {rank}, must be at most {max_rank} (--max-lora-rank)")
    num_in, num_out = (target.num_out, target.num_in) if target.by_rows else (target.num_in, target.num_out)
    for kind, tensor, shape in ((A, a, [rank, num_in]), (B, b, [num_out, rank])):
        if list(tensor.shape) != shape:
            raise ConfigError(
                f"{module.names[kind]} is {list(tensor.shape)}, must be {shape}: the adapter is of another model, or "
                "its config says another rank"
            )
    if target.pairs is not None:
        b = target.pairs.apart(b)
    up = b.float().T * config.scale_of(name)
    down = a.T if target.by_rows else a
    return LowRank(target.first, _copied(down, dtype, module.names[A]), _copied(up, dtype, module.names[B]))


def _whole(module: _Module, dtype: torch.dtype) -> WholeWeight:
    target, weight, bias = module.target, module.tensors[WEIGHT], module.tensors.get(BIAS)
    for kind, tensor, shape in ((WEIGHT, weight, [target.num_out, target.num_in]), (BIAS, bias, [target.num_out])):
        if tensor is not None and list(tensor.shape) != shape:
            raise ConfigError(
                f"{module.names[kind]} is {list(tensor.shape)}, must be {shape}: the adapter is of another model, or "
                "adds tokens, which is not built"
            )
    if target.pairs is not None:
        weight, bias = target.pairs.apart(weight), None if bias is None else target.pairs.apart(bias)
    kept = None if bias is None else _copied(bias, dtype, module.names[BIAS])
    return WholeWeight(target.first, _copied(weight, dtype, module.names[WEIGHT]), kept)


def _copied(tensor: Tensor, dtype: torch.dtype, named: str) -> Tensor:
    made = torch.empty(tensor.shape, dtype=dtype)
    copy_weights(made, tensor, named)
    return made


def _model_rows(module: _Module) -> ModelRows:
    """Some of those that PEFT saves with a change of embeddings."""
    copy, named, target = module.tensors[BASE], module.names[BASE], module.target
    shape = [target.num_out, target.num_in]
    if list(copy.shape) != shape:
        raise ConfigError(f"{named} is {list(copy.shape)}, must be {shape}: an adapter that adds tokens is not built")
    at = torch.linspace(0, target.num_out - 1, min(COMPARED, target.num_out)).long()
    return ModelRows(named, target, at, copy[at])


def check_model_rows(adapter: Adapter, base_rows: BaseRows) -> Adapter:
    """The adapter without them. Raises ConfigError where the model has others."""
    for found in adapter.model_rows:
        own, theirs = base_rows(found.target, found.at).float(), found.rows.float()
        if not torch.allclose(own, theirs, rtol=0.01, atol=0.01 * float(own.abs().max())):
            raise ConfigError(f"{found.named} is not this model's: the adapter is of another model")
    return replace(adapter, model_rows=())
