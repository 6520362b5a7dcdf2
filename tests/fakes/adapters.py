"""Adapters of tiny models, trained by nobody: PEFT writes their folders, and merges them for comparison."""

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


@dataclass(frozen=True)
class Made:
    """`options` are those of LoraConfig. `merged`: a model with the adapter's weights added; else beside them."""

    folder: Path
    model: Any = field(repr=False)


def base_of(folder: Path, kind: Any = AutoModelForCausalLM) -> Any:
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def make_adapter(
    base: Path, folder: Path, seed: int, *, kind: Any = AutoModelForCausalLM, merges: bool = True, size: float = 0.3,
    **options: Any,
) -> Made:  # fmt: skip
    """Random weights, large enough that outputs differ from the model's own. `kind`: the model's class."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(
            base_of(base, kind), LoraConfig(**{"lora_alpha": 8, "task_type": "CAUSAL_LM", **options})
        )
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data.normal_(std=size)
            elif "modules_to_save" in name:
                parameter.data += torch.randn_like(parameter) * 0.1
        model.save_pretrained(folder)
        return Made(folder, (model.merge_and_unload() if merges else model).eval())
