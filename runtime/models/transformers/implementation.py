"""Whose modules a model is made of: a family's of our own, or those of transformers.

Decides it from config.json, before any weight is read. Knows neither kind of module.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.registry import SUPPORTED, architecture_of, as_named, family_of, parse_shape, read_config
from ramet.runtime.models.shape import ModelShape

log = logging.getLogger("ramet")

Asked = Literal["auto", "native", "transformers"]  # as --model-impl spells them


@dataclass(frozen=True, slots=True)
class Implementation:
    """What would be served. Without a shape nothing would, and `why` says what each way refuses."""

    name: Literal["native", "transformers", "refused"]
    why: str
    shape: ModelShape | None


def implementation_of(values: dict[str, Any], place: str = "config.json", asked: Asked = "auto") -> Implementation:
    """Of a config.json. It is never an error."""
    refusals = []
    if asked != "transformers":
        try:
            return Implementation("native", "a family of our own", parse_shape(values, place))
        except ConfigError as error:
            refusals.append(str(error))
    if asked != "native":
        try:
            shape = _of_transformers(values, place)
        except ConfigError as error:
            refusals.append(str(error))
        else:
            why = refusals[0] if refusals else "--model-impl is transformers"
            if shape.architecture not in SUPPORTED:
                why = "it has no family of our own"
            return Implementation("transformers", why, shape)
    return Implementation("refused", "; through transformers: ".join(refusals), None)


def read_model(folder: Path, overrides: str, asked: Asked) -> ModelShape:
    """Of the model in `folder`; see registry.read_config. Raises ConfigError where nothing would be served."""
    values = read_config(folder, overrides)
    found = implementation_of(values, str(folder / "config.json"), asked)
    if found.shape is None:
        raise ConfigError(found.why)
    if found.name == "transformers":
        level = logging.WARNING if asked == "auto" and found.shape.architecture in SUPPORTED else logging.INFO
        log.log(level, "%s is served through transformers: %s", found.shape.architecture, found.why)
        return found.shape
    return as_named(found.shape, folder)


def skeleton_of(shape: ModelShape, dtype: torch.dtype, ops: Ops) -> CausalModel:
    """Without memory, to be measured."""
    if shape.of_transformers:
        from ramet.runtime.models.transformers.build import empty_model  # loads transformers

        return empty_model(shape, dtype, ops)
    with torch.device("meta"):
        return family_of(shape.architecture).decoder(shape, dtype, ops)


def _of_transformers(values: dict[str, Any], place: str) -> ModelShape:
    architecture_of(values, place)
    from ramet.runtime.models.transformers.reading import read_shape  # loads transformers

    return read_shape(values, place)
