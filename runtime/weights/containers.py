"""The files of a checkpoint: what their headers say of each tensor, and the tensors themselves, one at a time.

Decides which files are read and what is an error in them. Tensors are read into memory of our own, or mapped where
that is asked for: see runtime/file_bytes.py. Knows no model.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ramet.ipc.params import shown
from ramet.runtime.errors import ConfigError
from ramet.runtime.file_bytes import Stamp
from ramet.runtime.gguf.folder import LINK
from ramet.runtime.weights.bundle import TensorFacts
from ramet.runtime.weights.gguf_tensors import GgufFile
from ramet.runtime.weights.safetensors_file import open_safetensors

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_NAME = 255  # bytes of a file's name, on most systems
HOLDS_A_SHAPE = ".weight_shape"  # two whole numbers, which say more than a header
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scheduler.bin", "rng_state.pth")


class Checkpoint(Protocol):
    """Names are those of Hugging Face. Every method raises ConfigError that names the file."""

    @property
    def place(self) -> Path: ...

    @property
    def files(self) -> list[Path]:
        """That hold tensors."""

    @property
    def num_in_blocks(self) -> int:
        """Tensors that `tensors` widens."""

    def facts(self) -> Iterator[tuple[str, TensorFacts]]:
        """Of all tensors, by the headers."""

    def tensors(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """All of them, in the order of the files; what is in blocks of few bits comes in `dtype`."""


class SafetensorsFolder:
    def __init__(self, folder: Path, *, mapped: bool = False) -> None:
        self.place, self._mapped = folder, mapped
        self._stamps: dict[Path, Stamp] = {}  # of the files whose headers were read

    @property
    def files(self) -> list[Path]:
        """Those that the index names, or the single one."""
        index = self.place / INDEX
        if not index.is_file():
            if not (self.place / SINGLE).is_file():
                raise ConfigError(_nothing_in(self.place))
            return [self.place / SINGLE]
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise ConfigError(f"{index} is not a safetensors index: {error}") from error
        for name in names:
            if not isinstance(name, str) or Path(name).name != name or len(name) > MAX_NAME or "\0" in name:
                raise ConfigError(f"{index} names {shown(name)}, must name files beside it")
        missing = [name for name in names if not (self.place / name).is_file()]
        if missing:
            raise ConfigError(f"{index} names files that are not there: {', '.join(missing)}")
        return [self.place / name for name in names]

    @property
    def num_in_blocks(self) -> int:
        return 0

    def facts(self) -> Iterator[tuple[str, TensorFacts]]:
        for path in self.files:
            with open_safetensors(path) as file:
                self._stamps[path] = file.stamp
                for name, entry in file.entries.items():
                    holds = name.endswith(HOLDS_A_SHAPE) and entry.shape == (2,)
                    numbers = tuple(map(int, file.tensor(name).tolist())) if holds else ()
                    yield name, TensorFacts(entry.shape, entry.dtype, file.named(name), numbers)

    def tensors(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        for path in self.files:
            with open_safetensors(path, mapped=self._mapped, stamp=self._stamps.get(path)) as file:
                for name in file.entries:
                    yield name, file.tensor(name)


def opened(folder: Path, *, mapped: bool = False) -> Checkpoint:
    """The checkpoint of a model folder."""
    if (folder / LINK).is_file():
        return GgufFile(folder, (folder / LINK).resolve(), mapped=mapped)
    return SafetensorsFolder(folder, mapped=mapped)


def pickles_of(folder: Path) -> list[Path]:
    """Files of torch.save that look like weights."""
    found = {path for pattern in PICKLES for path in folder.glob(pattern)}
    return sorted(path for path in found if path.name not in NO_WEIGHTS)


def _nothing_in(folder: Path) -> str:
    if pickles := pickles_of(folder):
        return (
            f"{folder} has its weights in {pickles[0].name}, a pickle, which may execute code when it is read: if you "
            f"trust it, write them as safetensors with `ramet convert {folder} TARGET`"
        )
    if shards := sorted(path.name for path in folder.glob("*.safetensors")):
        return (
            f"{folder} has {len(shards)} safetensors files, such as {shards[0]}, and neither {SINGLE} nor {INDEX}: "
            f"download {INDEX}, which says where each tensor is, or name the only file {SINGLE}"
        )
    return f"{folder} has neither {SINGLE} nor {INDEX}: --load-format dummy needs config.json alone"
