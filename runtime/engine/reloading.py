"""Other weights for a model that runs, of the same shape: read beside it, then put in its place between two steps.

Decides what is refused and how they change places. On a CPU a second model is loaded and packed on another thread while
steps run, and takes the place of the first: steps that are recorded point into the old one, so they are recorded anew.
On a GPU graphs keep their addresses, so plain weights are read to the host and copied over those that are there.
Until it is `place`d, nothing of the model that runs has changed. Peak memory is both models.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from ramet.kernels import reference
from ramet.runtime.config import Args
from ramet.runtime.engine.devices.base import Device
from ramet.runtime.engine.startup import dummy_seed, load_model
from ramet.runtime.engine.towers import tower_for
from ramet.runtime.errors import ConfigError
from ramet.runtime.machine import available_memory, collect_all, trim_heap
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.towers.registry import has_tower
from ramet.runtime.models.transformers.implementation import read_model, skeleton_of
from ramet.runtime.text.files import read_json
from ramet.runtime.weights.heads import Heads, load_heads

TOWER_CONFIGS = "vision_config", "audio_config"

log = logging.getLogger("ramet")
ROOM = 1.05  # of the weights that must be free: the largest one is there twice while it is packed


@dataclass(frozen=True, slots=True)
class ReadWeights:
    args: Args  # which name them
    model: CausalModel
    heads: Heads
    tower: Any  # see runtime/models/towers/base.py; None: there is none


class WeightReader:
    """Reads and places other weights. `swap` gives the runner a model, its heads and its tower; no step runs then."""

    def __init__(
        self, args: Args, shape: ModelShape, dtype: torch.dtype, device: Device, num_bytes: int,
        swap: Callable[[CausalModel, Heads, Any], None],
    ) -> None:  # fmt: skip
        self._args, self._shape, self._dtype, self._device = args, shape, dtype, device
        self._num_bytes, self._swap = num_bytes, swap

    def read(self, path: str) -> ReadWeights:
        """On any thread, while steps run. Raises ConfigError."""
        self.check_kind()
        return self._read(replace(self._args, model=replace(self._args.model, model_path=path, load_format="auto")))

    def read_again(self) -> ReadWeights:
        """Those that were placed last, or that the start has read. On any thread. Raises ConfigError."""
        return self._read(self._args)

    def _read(self, args: Args) -> ReadWeights:
        folder = args.model_folder
        path = str(folder)
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{path} has no config.json: it must be a Hugging Face model folder on this machine")
        self._check_shape(read_model(folder, args.model.json_model_override_args, args.model.model_impl), path)
        if has_tower(self._shape):
            self._check_media(folder)
        if (needed := int(self._needed() * ROOM)) > (free := available_memory()):
            raise ConfigError(
                f"{path} needs {needed} bytes beside what is in use, {free} are free: start with "
                "a lower --mem-fraction-static or --max-total-tokens"
            )
        stays, on = self._device.keeps_addresses, self._device.torch  # weights are read to the host, to be copied over
        device, ops = (torch.device("cpu"), reference) if stays else (on, self._device.ops)
        model, _ = load_model(args, self._shape, self._dtype, device, ops, mapped=False)
        tower = tower_for(args, self._shape, self._dtype, on) if has_tower(self._shape) else None
        return ReadWeights(args, model, load_heads(folder, self._shape, dummy_seed(args)), tower)

    def place(self, read: ReadWeights) -> None:
        """No step runs. Raises ConfigError; then nothing has changed."""
        self._swap(read.model, read.heads, read.tower)
        self._args = read.args
        collect_all()  # parts of the old model refer to one another
        trim_heap()  # where the plain weights were that have been packed

    def _needed(self) -> int:
        """Bytes of the whole model before it is packed, or of what a quantised checkpoint has."""
        if self._shape.quantization is not None:
            return self._num_bytes
        return sum(each.nbytes for each in skeleton_of(self._shape, self._dtype, reference).parameters())

    def check_kind(self) -> None:
        """Raises ConfigError where weights cannot be read while a model is there."""
        if self._shape.of_transformers:
            raise ConfigError("weights of a model that is served through transformers cannot be updated or released")
        if self._shape.quantization is not None and self._shape.latent is not None:
            raise ConfigError("weights of a quantised model with latents cannot be updated or released")
        kept = self._args.model.quantization or self._shape.quantization
        if self._device.keeps_addresses and (kept or self._shape.latent is not None):
            raise ConfigError("on a GPU only plain weights can be updated: not quantised ones, nor those of latents")

    def _check_shape(self, found: ModelShape, path: str) -> None:
        """A checkpoint of another dtype is converted, as at the start."""
        for field in fields(found):
            if field.name != "dtype" and getattr(found, field.name) != getattr(self._shape, field.name):
                raise ConfigError(
                    f"{path} is another model than the one that is served: {field.name.replace('_', ' ')} of its "
                    "config.json is different"
                )

    def _check_media(self, folder: Path) -> None:
        """What is prepared for the tower stays as it is."""
        ours, theirs = (read_json(each / "config.json") for each in (self._args.model_folder, folder))
        for key in TOWER_CONFIGS:
            if ours.get(key) != theirs.get(key):
                fact = f"{key} of its config.json is different"
                raise ConfigError(f"{folder} is another model than the one that is served: {fact}")


@torch.inference_mode()
def copy_over(model: CausalModel, source: CausalModel) -> None:
    """WRITES every parameter of `model` with that of `source`, of the same shape and on the host."""
    of_source = dict(source.named_parameters())
    for name, parameter in model.named_parameters():
        parameter.data.copy_(of_source[name].data)
