"""Checkpoints in the forms of compressed-tensors and in float8 blocks, made of plain ones, with what they mean."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from quantised_checkpoints import LINEAR
from safetensors.torch import load_file, save_file
from torch import Tensor

FP8 = torch.float8_e4m3fn
MAX_FP8 = 448.0


@dataclass(frozen=True)
class Stored:
    """`scale_of`: tensor, channel, block or a number of inputs. Scales are in `scales`."""

    form: str  # packed, int8, fp8, fp8_inverse
    scale_of: str | int = "channel"
    bits: int = 4
    symmetric: bool = True
    ordered: bool = False
    scales: torch.dtype = torch.float16
    weight_only: bool = True
    block: tuple[int, int] = (32, 16)

    @property
    def config(self) -> dict[str, Any]:
        if self.form == "fp8_inverse":
            same = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
            return {**same, "weight_block_size": list(self.block), "modules_to_not_convert": ["lm_head"]}
        is_int = self.form != "fp8"
        strategy = "group" if isinstance(self.scale_of, int) else self.scale_of
        inputs = dict(num_bits=8, type="int" if is_int else "float", dynamic=True, strategy="token", symmetric=True)
        weights = dict(
            num_bits=self.bits if self.form == "packed" else 8, type="int" if is_int else "float", strategy=strategy,
            symmetric=self.symmetric, group_size=self.scale_of if strategy == "group" else None, dynamic=False,
            actorder="group" if self.ordered else None, observer="minmax", observer_kwargs={},
            block_structure=list(self.block) if strategy == "block" else None,
        )  # fmt: skip
        format = {"packed": "pack-quantized", "int8": "int-quantized", "fp8": "float-quantized"}[self.form]
        group = {
            "targets": ["Linear"], "weights": weights, "input_activations": None if self.weight_only else inputs,
            "output_activations": None, "format": format,
        }  # fmt: skip
        return {
            "quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group},
            "ignore": ["lm_head"], "quantization_status": "compressed", "global_compression_ratio": 2.0,
            "kv_cache_scheme": None, "sparsity_config": {}, "transform_config": {}, "version": "0.20.0",
        }  # fmt: skip


def store_folder(plain: Path, stored: Path, meant: Path, form: Stored, modules: str = "") -> None:
    """Write two copies of `plain`: stored where the name matches `modules`, and the same weights in float32."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(plain.glob("*.safetensors")):
        tensors |= load_file(path)
    few, dense = {}, {}
    for name, weight in tensors.items():
        if not (LINEAR.fullmatch(name) and re.search(modules, name)):
            few[name] = dense[name] = weight.float()
            continue
        made, dense[name] = stored_weight(weight.float(), form)
        few |= {name.removesuffix("weight") + part: tensor for part, tensor in made.items()}
    for folder, content in ((stored, few), (meant, dense)):
        shutil.copytree(plain, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
        save_file({n: t.contiguous() for n, t in content.items()}, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    (stored / "config.json").write_text(json.dumps({**config, "quantization_config": form.config}))


def stored_weight(weight: Tensor, form: Stored) -> tuple[dict[str, Tensor], Tensor]:
    """weight [M, N] float32 -> the tensors of a checkpoint, and the weight [M, N] float32 that they mean."""
    num_out, num_in = weight.shape
    rows, columns = {"tensor": (num_out, num_in), "channel": (1, num_in), "block": form.block}.get(
        str(form.scale_of), (1, form.scale_of)
    )
    assert isinstance(columns, int)
    group = np.arange(num_in) // columns
    if form.ordered:
        group = np.random.RandomState(num_in).permutation(group)
    of_row, of_column = torch.arange(num_out) // rows, torch.from_numpy(group)
    shape = int(of_row.max()) + 1, int(of_column.max()) + 1
    cell = (of_row[:, None] * shape[1] + of_column).flatten()

    def most(values: Tensor) -> Tensor:
        return torch.zeros(shape).flatten().scatter_reduce(0, cell, values.flatten(), "amax").view(shape)

    high, low = most(weight.clamp(min=0)), most((-weight).clamp(min=0))
    largest = MAX_FP8 if form.form.startswith("fp8") else 2 ** (form_bits(form) - 1) - 0.5
    scales = (torch.maximum(high, low) / largest).to(form.scales)
    zeros = torch.zeros(shape)
    lowest, highest = -(2 ** (form_bits(form) - 1)), 2 ** (form_bits(form) - 1) - 1
    if not form.symmetric:
        scales = ((high + low) / (highest - lowest)).to(form.scales)
        zeros = (lowest + low / scales.float()).round().clamp(lowest, highest)
    each_scale, each_zero = scales.float()[of_row][:, of_column], zeros[of_row][:, of_column]
    if form.form.startswith("fp8"):
        whole = (weight / each_scale).clamp(-MAX_FP8, MAX_FP8).to(FP8)
        kind = "weight_scale_inv" if form.form == "fp8_inverse" else "weight_scale"
        return {
            "weight": whole,
            kind: scales.view(1) if form.scale_of == "tensor" else scales,
        }, whole.float() * each_scale
    numbers = ((weight / each_scale).round() + each_zero).clamp(lowest, highest)
    meant = (numbers - each_zero) * each_scale
    made = {"weight_scale": scales.view(1) if form.scale_of == "tensor" else scales}
    if form.form == "int8":
        return {**made, "weight": numbers.to(torch.int8)}, meant
    made |= {"weight_packed": packed(numbers, form.bits), "weight_shape": torch.tensor(weight.shape)}
    if not form.symmetric:
        made["weight_zero_point"] = packed(zeros.T, form.bits).T
    if form.ordered:
        made["weight_g_idx"] = of_column.int()
    return made, meant


def form_bits(form: Stored) -> int:
    return form.bits if form.form == "packed" else 8


def packed(numbers: Tensor, bits: int) -> Tensor:
    """[R, n] whole numbers -> [R, ceil(n bits / 32)] int32: a stream of bits from the lowest up."""
    unsigned = numbers.long().numpy() + 2 ** (bits - 1)
    stream = (unsigned[:, :, None] >> np.arange(bits) & 1).reshape(len(unsigned), -1)
    stream = np.pad(stream, ((0, 0), (0, -stream.shape[1] % 32)))
    words = (stream.reshape(len(unsigned), -1, 32) << np.arange(32)).sum(-1)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))
