"""AWQ and GPTQ checkpoints made of plain ones, as AutoAWQ, AutoGPTQ and GPTQModel write them, with what they mean."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

LINEAR = re.compile(r"model\.layers\.\d+\..*_proj\.weight")
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # output in bits 0 to 3 of a word, in bits 4 to 7, ...


@dataclass(frozen=True)
class Kind:
    method: str
    group_size: int = 32
    symmetric: bool = False
    ordered: bool = False  # by activations: the inputs of a group lie apart
    form: str = "gptq"  # checkpoint_format
    stored_as: str = ""  # the form that is really stored, if it is another

    @property
    def config(self) -> dict[str, Any]:
        same = {"quant_method": self.method, "bits": 4, "group_size": self.group_size, "modules_to_not_convert": None}
        if self.method == "awq":
            return {**same, "version": "gemm", "zero_point": True}
        more = {"desc_act": self.ordered, "sym": self.symmetric, "damp_percent": 0.01, "true_sequential": True}
        return {**same, **more, "checkpoint_format": self.form}


def quantise_folder(plain: Path, quantised: Path, meant: Path, kind: Kind, modules: str = "") -> None:
    """Write two copies of `plain`: 4-bit weights where the name matches `modules`, and the same weights in float32."""
    for folder in (quantised, meant):
        shutil.copytree(plain, folder)
    tensors = load_file(plain / "model.safetensors")
    words, dense = {}, {}
    for name, weight in tensors.items():
        if not (LINEAR.fullmatch(name) and re.search(modules, name)):
            words[name] = dense[name] = weight
            continue
        made, dense[name] = quantise(weight.float().numpy(), kind)
        words |= {name.replace("weight", part): tensor for part, tensor in made.items()}
    save_file(words, quantised / "model.safetensors", metadata={"format": "pt"})
    save_file(dense, meant / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    (quantised / "config.json").write_text(json.dumps({**config, "quantization_config": kind.config}))


def quantise(weight: np.ndarray, kind: Kind) -> tuple[dict[str, Tensor], Tensor]:
    """weight [M, N] -> the tensors of a checkpoint, and the weight [M, N] float32 that they mean."""
    num_out, num_in = weight.shape
    size = num_in if kind.group_size < 0 else kind.group_size
    order = np.random.RandomState(num_in).permutation(num_in) if kind.ordered else np.arange(num_in)
    g_idx = np.empty(num_in, np.int32)
    g_idx[order] = np.arange(num_in) // size
    groups = -(-num_in // size)
    scales, zeros = np.empty((groups, num_out), np.float16), np.empty((groups, num_out), np.int64)
    for group in range(groups):
        part = weight[:, g_idx == group]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        if kind.symmetric:
            scales[group], zeros[group] = np.maximum(-low, high) / 7.5, 8
        else:
            scales[group] = (high - low) / 15
            zeros[group] = np.clip(np.rint(-low / scales[group].astype(np.float32)), 1, 15)
    each_scale, each_zero = scales.astype(np.float32)[g_idx], zeros[g_idx]  # [N, M]
    q = np.clip(np.rint(weight.T / each_scale) + each_zero, 0, 15).astype(np.int64)
    meant = ((q - each_zero).astype(np.float32) * each_scale).T
    made = {"scales": torch.from_numpy(scales)}
    if kind.method == "awq":
        made |= {"qweight": eights(q, 1, AWQ_ORDER), "qzeros": eights(zeros, 1, AWQ_ORDER)}
    else:
        stored = zeros - (1 if (kind.stored_as or kind.form) == "gptq" else 0)
        made |= {"qweight": eights(q, 0), "qzeros": eights(stored, 1), "g_idx": torch.from_numpy(g_idx)}
    return made, torch.from_numpy(np.ascontiguousarray(meant))


def eights(numbers: np.ndarray, axis: int, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Eight along the axis in each int32: number order[i] of the eight in the bits from 4 i on."""
    words = np.zeros_like(np.take(numbers, range(0, numbers.shape[axis], 8), axis))
    for i, which in enumerate(order):
        words |= np.take(numbers, range(which, numbers.shape[axis], 8), axis) << 4 * i
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))
