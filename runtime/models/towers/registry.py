"""From an architecture to its tower. A tower's file, which loads transformers, is imported when a model asks for it."""

from importlib import import_module
from typing import Any

from ramet.runtime.media.formats.registry import FORMATS
from ramet.runtime.models.shape import ModelShape

# architecture -> the module of this folder with its TOWER, most often that of its media's format
TOWERS = {**FORMATS, "Gemma3ForConditionalGeneration": "internvl"}


def has_tower(shape: ModelShape) -> bool:
    return not shape.of_transformers and _class_of(shape) in TOWERS


def tower_of(shape: ModelShape) -> Any:
    """A subclass of Tower, of a model that has one."""
    return import_module(f"ramet.runtime.models.towers.{TOWERS[_class_of(shape)]}").TOWER


def _class_of(shape: ModelShape) -> str:
    """That of the whole model."""
    return shape.composite or shape.architecture
