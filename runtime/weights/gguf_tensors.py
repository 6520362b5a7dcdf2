"""Tensors of a GGUF file under the names of Hugging Face, with what llama.cpp changed undone.

They are made one at a time, blocks some rows at a time."""

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.errors import ConfigError
from ramet.runtime.file_bytes import FileBytes
from ramet.runtime.gguf.file import GgufHeader, open_again, read_header
from ramet.runtime.gguf.names import TensorSource, sources_of
from ramet.runtime.gguf.tensors import block_rows, plain_rows, widened
from ramet.runtime.weights.bundle import TensorFacts, rows_of_chunk

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class GgufFile:
    """`folder` is what runtime/gguf/folder.py has made of the file."""

    def __init__(self, folder: Path, file: Path, *, mapped: bool = False) -> None:
        self.place, self._mapped = file, mapped
        self._config = json.loads((folder / "config.json").read_text(encoding="utf-8"))

    @property
    def files(self) -> list[Path]:
        return [self.place]

    @cached_property
    def _header(self) -> GgufHeader:
        return read_header(self.place)

    @property
    def num_in_blocks(self) -> int:
        return sum(source.place.type_name not in PLAIN for source in sources_of(self._header, self._config))

    def facts(self) -> Iterator[tuple[str, TensorFacts]]:
        for source in sources_of(self._header, self._config):
            dtype = PLAIN.get(source.place.type_name, torch.float32)
            yield source.name, TensorFacts(source.shape, dtype, f"{self.place}: tensor {source.name}")

    def tensors(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        with open_again(self._header, mapped=self._mapped) as data:
            for source in sources_of(self._header, self._config):
                yield source.name, _tensor(data, source, dtype, f"{self.place}: tensor {source.name}")


def _tensor(data: FileBytes, source: TensorSource, dtype: torch.dtype, named: str) -> Tensor:
    place = source.place if source.expert is None else source.place.part(source.expert)
    plain = plain_rows(data, place)
    if plain is not None:
        tensor = _as_torch(plain).view(PLAIN[place.type_name])
    else:
        try:
            tensor = _widened(block_rows(data, place), place.type, dtype)
        except ConfigError as error:
            raise ConfigError(f"{named}: {error}") from None
    if source.heads is not None:
        tensor = _halves(tensor, source.heads)
    if source.less_one:
        tensor = tensor.float() - 1
    return tensor.view(source.shape)


def _as_torch(part: np.ndarray[Any, Any]) -> Tensor:
    """The same memory."""
    return torch.from_numpy(part.view(np.int16) if part.dtype == np.uint16 else part)


def _widened(blocks: np.ndarray[Any, Any], kind: int, dtype: torch.dtype) -> Tensor:
    rows = blocks.reshape(-1, blocks.shape[-1])
    first = torch.from_numpy(widened(rows[:1], kind))
    result = torch.empty(len(rows), first.shape[1], dtype=dtype)
    step = rows_of_chunk(first.shape[1])
    for start in range(0, len(rows), step):
        result[start : start + step] = torch.from_numpy(widened(rows[start : start + step], kind))
    return result


def _halves(tensor: Tensor, heads: int) -> Tensor:
    """Rows of each head from pairs of neighbours, 2 i and 2 i + 1, to i and size / 2 + i."""
    return tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
