"""From an architecture to its tower. A tower's file, which loads transformers, is imported when a model asks for it."""

from importlib import import_module
from typing import Any

TOWERS = {  # architecture as Hugging Face names it -> the module of this folder with its TOWER
    "LlavaForConditionalGeneration": "llava",
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
}


def tower_of(architecture: str) -> Any:
    """A subclass of Tower."""
    return import_module(f"ramet.runtime.models.towers.{TOWERS[architecture]}").TOWER
