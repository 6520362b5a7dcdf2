"""From an architecture to its tower. A tower's file, which loads transformers, is imported when a model asks for it."""

from importlib import import_module
from typing import Any

from ramet.runtime.models.shape import ModelShape

TOWERS = {  # architecture as Hugging Face names it -> the module of this folder with its TOWER
    "Gemma3ForConditionalGeneration": "gemma3",
    "Idefics3ForConditionalGeneration": "idefics3",
    "InternVLForConditionalGeneration": "internvl",
    "LlavaForConditionalGeneration": "llava",
    "LlavaNextForConditionalGeneration": "llava_next",
    "LlavaOnevisionForConditionalGeneration": "llava_onevision",
    "Qwen2AudioForConditionalGeneration": "qwen2_audio",
    "SmolVLMForConditionalGeneration": "smolvlm",
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
}


def has_tower(shape: ModelShape) -> bool:
    return not shape.of_transformers and _class_of(shape) in TOWERS


def tower_of(shape: ModelShape) -> Any:
    """A subclass of Tower, of a model that has one."""
    return import_module(f"ramet.runtime.models.towers.{TOWERS[_class_of(shape)]}").TOWER


def _class_of(shape: ModelShape) -> str:
    """That of the whole model."""
    return shape.composite or shape.architecture
