"""The header of a GGUF file (versions 2 and 3): its metadata, and where each tensor lies. Knows no model.

Every length is compared with the file before it is used, so a file that is cut off or lies is an error that costs no
memory. Tensors are not read here: `places` says where they are.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from ramet.runtime.errors import ConfigError
from ramet.runtime.file_bytes import FileBytes, Stamp

MAGIC, VERSIONS, SUFFIX = b"GGUF", (2, 3), ".gguf"
MAX_DIMS, USUAL_ALIGNMENT = 4, 32
MAX_TENSORS, MAX_KEYS, MAX_DEPTH = 1 << 20, 1 << 16, 4
STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TYPES: Mapping[int, tuple[str, int, int]] = {  # number -> name, numbers of a block, bytes of a block
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Of a tensor."""

    shape: tuple[int, ...]  # as torch has it: the last dimension lies side by side
    type: int
    start: int  # byte of the file
    num_bytes: int

    @property
    def type_name(self) -> str:
        return TYPES[self.type][0]

    def part(self, index: int) -> "TensorPlace":
        """Of the first dimension."""
        size = self.num_bytes // self.shape[0]
        return replace(self, shape=self.shape[1:], start=self.start + index * size, num_bytes=size)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    path: Path
    stamp: Stamp
    metadata: Mapping[str, Any]
    places: Mapping[str, TensorPlace]


def read_header(path: Path) -> GgufHeader:
    """Raises ConfigError."""
    with _named(path), FileBytes(path) as data:
        return GgufHeader(path, data.stamp, *_GgufReader(data).read())


@contextmanager
def open_again(header: GgufHeader, *, mapped: bool = False) -> Iterator[FileBytes]:
    """Raises ConfigError."""
    with _named(header.path), FileBytes(header.path, mapped=mapped, stamp=header.stamp) as data:
        yield data


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a readable GGUF file: {error}") from error


class _GgufReader:
    """Every method raises ValueError."""

    def __init__(self, data: FileBytes) -> None:
        self._file, self._size, self._at = data.file, data.num_bytes, 0

    def read(self) -> tuple[dict[str, Any], dict[str, TensorPlace]]:
        if self._size < len(MAGIC) or self._bytes(len(MAGIC)) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = self._scalar("I")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, must be {' or '.join(map(str, VERSIONS))} (little-endian)")
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        if num_tensors > MAX_TENSORS or num_keys > MAX_KEYS:
            raise ValueError(f"it says that it has {num_tensors} tensors and {num_keys} keys")
        metadata = dict(self._pair() for _ in range(num_keys))
        if len(metadata) != num_keys:
            raise ValueError("a key of its metadata is there twice")
        found = [self._tensor() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", USUAL_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment % 8:
            raise ValueError(f"general.alignment is {alignment!r}, must be a multiple of 8")
        return metadata, self._placed(found, -(-self._at // alignment) * alignment, alignment)

    def _placed(self, found: list[tuple[str, TensorPlace]], start: int, alignment: int) -> dict[str, TensorPlace]:
        places: dict[str, TensorPlace] = {}
        end, last = start, ""
        for name, relative in sorted(found, key=lambda each: each[1].start):
            place = TensorPlace(relative.shape, relative.type, start + relative.start, relative.num_bytes)
            if name in places:
                raise ValueError(f"tensor {name} is there twice")
            if relative.start % alignment or place.start < end:
                raise ValueError(f"tensor {name} begins at byte {place.start}, inside of {last or 'its header'}")
            end, last = place.start + place.num_bytes, name
            if end > self._size:
                raise ValueError(f"tensor {name} ends at byte {end}, but the file has {self._size}: it is cut off")
            places[name] = place
        return places

    def _tensor(self) -> tuple[str, TensorPlace]:
        """Its start is behind the header."""
        name, num_dims = self._string(), self._scalar("I")
        if not 1 <= num_dims <= MAX_DIMS:
            raise ValueError(f"tensor {name} has {num_dims} dimensions, must have 1 to {MAX_DIMS}")
        shape = tuple(self._scalar("Q") for _ in range(num_dims))[::-1]
        kind, start = self._scalar("I"), self._scalar("Q")
        if kind not in TYPES:
            raise ValueError(f"tensor {name} is of type {kind}, which ramet does not read")
        type_name, of_block, bytes_of_block = TYPES[kind]
        if not all(shape) or shape[-1] % of_block:
            raise ValueError(
                f"tensor {name} is {list(shape)}, must have rows of a multiple of {of_block} numbers in {type_name}"
            )
        return name, TensorPlace(shape, kind, start, prod(shape) // of_block * bytes_of_block)

    def _pair(self) -> tuple[str, Any]:
        key = self._string()
        return key, self._value(self._scalar("I"), key, 0)

    def _value(self, kind: int, key: str, depth: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind in SCALARS:
            return self._scalar(SCALARS[kind])
        if kind != ARRAY or depth == MAX_DEPTH:
            raise ValueError(f"{key} is of type {kind}, which GGUF does not have here")
        inner, num = self._scalar("I"), self._scalar("Q")
        if inner in SCALARS:
            return list(self._scalars(SCALARS[inner], num))
        read: Callable[[], Any] = self._string if inner == STRING else partial(self._value, inner, key, depth + 1)
        self._require(8 * num if inner == STRING else 12 * num)  # what its elements need at least
        return [read() for _ in range(num)]

    def _scalar(self, code: str) -> Any:
        return self._scalars(code, 1)[0]

    def _scalars(self, code: str, num: int) -> tuple[Any, ...]:
        return struct.unpack(f"<{num}{code}", self._bytes(struct.calcsize(code) * num))

    def _string(self) -> str:
        return self._bytes(self._scalar("Q")).decode("utf-8", errors="strict")

    def _bytes(self, num: int) -> bytes:
        self._require(num)
        self._at += num
        found = self._file.read(num)
        if len(found) != num:
            raise ValueError("it became shorter while it was read")
        return found

    def _require(self, num_bytes: int) -> None:
        if num_bytes > self._size - self._at:
            raise ValueError(f"it ends in its header, at byte {self._size}: it is cut off")
