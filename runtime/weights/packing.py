"""In which form the weights of linear layers are kept: as they are, or in 8 or 4 bits. Decides it, and its size."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ramet.kernels.int4_words import GROUPS, group_of
from ramet.kernels.packers import PackedWeight, Packer
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import Embedding, Linear, pack_linears
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.shape import CheckpointQuantization

PLAIN = "plain"
SCALES_BYTES = 4  # a group's scale and zero


@dataclass(frozen=True, slots=True)
class WeightForm:
    """Names are those of --quantization, or PLAIN. The head may be a tied embedding."""

    layers: str
    head: str
    group: int = GROUPS[0]  # of 4-bit weights: inputs that share a scale, at most


FORMS = {
    None: WeightForm(PLAIN, PLAIN),
    "int8": WeightForm("int8", "int8"),
    "int8wo": WeightForm("int8wo", "int8wo"),
    "int4": WeightForm("int4", "int8"),
    "fp8": WeightForm("fp8", PLAIN),
}


def form_of(asked: str | None, checkpoint: CheckpointQuantization | None) -> WeightForm:
    """What layers of a checkpoint keep counts. Raises ConfigError if something else is asked for."""
    if checkpoint is None or checkpoint.kept is None:
        if asked not in FORMS:
            raise ConfigError(f"--quantization is {asked}, but config.json has no such quantization_config")
        return FORMS[asked]
    if asked not in (None, checkpoint.method):
        valid = "left out" if checkpoint.method == "compressed-tensors" else f"{checkpoint.method} or left out"
        raise ConfigError(f"--quantization is {asked}, must be {valid}: config.json says {checkpoint.method}")
    size = checkpoint.group_size
    return WeightForm(checkpoint.kept, PLAIN, GROUPS[0] if size is None else size & -size)


def pack_model(model: CausalModel, form: WeightForm, ops: Ops) -> None:
    """What is plain so far."""
    exact = packer_of(PLAIN, form.group, ops)
    for part, name in ((model.output, form.head), (model.layers, form.layers)):
        pack_linears(part, packer_of(name, form.group, ops), exact)


def packer_of(name: str, group: int, ops: Ops) -> Packer | None:
    """None: weights stay plain, for torch."""
    packers = ops.packers
    if name == PLAIN:
        return packers.plain
    if name == "fp8":
        return _float8
    if name != "int4":
        return partial(packers.whole, weight_only=name == "int8wo")

    def packed(weight: Tensor) -> PackedWeight:
        fitting = group_of(weight.shape[1], group)
        return packers.whole(weight) if fitting is None else packers.fours(weight, fitting)

    return packed


def _float8(weight: Tensor) -> PackedWeight:
    """Raises ConfigError where the tensor cores take no such sizes."""
    from ramet.kernels.linear_fp8 import Fp8Weight  # loads triton

    try:
        return Fp8Weight.of(weight)
    except ValueError as error:
        raise ConfigError(f"--quantization is fp8, but the model has {error}") from None


def weight_bytes(
    model: nn.Module, dtype: torch.dtype, form: WeightForm, in_few_bits: Collection[str] | None = None
) -> int:
    """Of all parameters, as they are once they are packed.

    `in_few_bits`: the linear layers for which `form` counts; None: all that may be rounded.
    """
    total = 0.0
    for name, module in model.named_modules():
        kept = form.layers if name.startswith("layers.") else form.head
        for parameter in module.parameters(recurse=False):
            is_packed = isinstance(module, Linear | Embedding) and module.is_read_whole and parameter.ndim == 2
            is_packed = is_packed and module.may_round and (in_few_bits is None or name in in_few_bits)
            total += parameter.numel() * (
                _bytes_of(kept, parameter.shape[1], form.group, dtype) if is_packed else dtype.itemsize
            )
    return round(total)


def _bytes_of(kept: str, num_in: int, most: int, dtype: torch.dtype) -> float:
    """A weight."""
    if kept == PLAIN:
        return dtype.itemsize
    group = group_of(num_in, most) if kept == "int4" else None
    return 1.0 if group is None else 0.5 + SCALES_BYTES / group
