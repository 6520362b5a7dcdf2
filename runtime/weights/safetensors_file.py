"""One safetensors file: what its header says of each tensor, and the tensors themselves, one at a time.

Decides what is an error in it, as the library of that name does, which would map the file. Knows no model.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ramet.ipc.params import shown
from ramet.runtime.errors import ConfigError
from ramet.runtime.file_bytes import FileBytes, Stamp

DTYPES = {  # as a header names them
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu, "BF16": torch.bfloat16, "F16": torch.float16,
    "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
}  # fmt: skip
LENGTH_BYTES, MAX_HEADER = 8, 100_000_000
ABOUT_FILE = "__metadata__"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int  # byte of the file
    num_bytes: int


class SafetensorsFile:
    """`entries` by the tensors' names, in the order of these: tensors that mean one weight are beside one another."""

    def __init__(self, path: Path, data: FileBytes) -> None:
        self._path, self._data = path, data
        self.entries = _read_header(path, data)

    @property
    def stamp(self) -> Stamp:
        return self._data.stamp

    def named(self, name: str) -> str:
        """For errors."""
        return f"{self._path}: tensor {name}"

    def tensor(self, name: str) -> Tensor:
        entry = self.entries[name]
        if not entry.num_bytes:
            return torch.empty(entry.shape, dtype=entry.dtype)
        data = self._data.take(entry.start, entry.num_bytes)
        return torch.from_numpy(data).view(entry.dtype).view(entry.shape)


@contextmanager
def open_safetensors(path: Path, *, mapped: bool = False, stamp: Stamp | None = None) -> Iterator[SafetensorsFile]:
    """As FileBytes. Raises ConfigError that names the file."""
    try:
        with FileBytes(path, mapped=mapped, stamp=stamp) as data:
            yield SafetensorsFile(path, data)
    except (OSError, _Damaged) as error:
        raise ConfigError(f"{path} is not a readable safetensors file: {error}") from error


class _Damaged(Exception):
    pass


def _read_header(path: Path, data: FileBytes) -> dict[str, TensorEntry]:
    """Every byte behind it belongs to one tensor. Raises _Damaged, and ConfigError for a dtype that torch has not."""
    if data.num_bytes < LENGTH_BYTES:
        raise _Damaged(f"it has {data.num_bytes} bytes")
    length = int.from_bytes(data.take(0, LENGTH_BYTES).tobytes(), "little")
    first = LENGTH_BYTES + length
    if length > MAX_HEADER or first > data.num_bytes:
        raise _Damaged(f"it says that its header has {length} bytes, and has {data.num_bytes} itself")
    try:
        header = json.loads(data.take(LENGTH_BYTES, length).tobytes())
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise _Damaged("its header is not a JSON object")
    given = {name: _entry(name, about, first) for name, about in sorted(header.items()) if name != ABOUT_FILE}
    end = first
    for name, (_, _, start, num_bytes) in sorted(given.items(), key=lambda each: each[1][2:]):
        if start != end:
            raise _Damaged(f"tensor {shown(name)} begins at byte {start}, must begin at {end}")
        end += num_bytes
    if end != data.num_bytes:
        raise _Damaged(f"its tensors end at byte {end}, and it has {data.num_bytes}: it is not whole")
    return {name: _checked(path, name, *facts) for name, facts in given.items()}


def _entry(name: str, about: Any, first: int) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, the byte where it starts, and how many it has."""
    match about:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end]} if name.isprintable() and all(
            type(number) is int and number >= 0 for number in (*shape, start, end)
        ):
            return dtype, tuple(shape), first + start, end - start
    raise _Damaged(f"what its header says of tensor {shown(name)} is not understood")


def _checked(path: Path, name: str, dtype: str, shape: tuple[int, ...], start: int, num_bytes: int) -> TensorEntry:
    if dtype not in DTYPES:
        raise ConfigError(f"{path}: tensor {name} is {shown(dtype)}, must be one of {', '.join(DTYPES)}")
    if num_bytes != prod(shape) * DTYPES[dtype].itemsize:
        raise _Damaged(f"tensor {shown(name)} is {list(shape)} in {dtype}, and has {num_bytes} bytes")
    return TensorEntry(DTYPES[dtype], shape, start, num_bytes)
