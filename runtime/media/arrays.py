"""Arrays of media in a file, and from buffers that a client sent: in a worker process alone.

A file has one array after the other, each from a multiple of 64 bytes on, in the byte order of this machine.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ramet.ipc.media import ArrayAt
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.media.source import Arrays

ALIGNMENT = 64  # bytes
MAX_DIMENSIONS = 8
MAX_NUMBER = 1e4  # of floats, as of an embedding's: sums over layers must stay within float16's 65504
RECEIVED = {  # what a client calls it -> as it is read, and as it is kept
    "float32": ("<f4", "float32"),
    "float16": ("<f2", "float32"),
    "bfloat16": ("<u2", "float32"),
    "float64": ("<f8", "float32"),
    "int64": ("<i8", "int64"),
    "int32": ("<i4", "int64"),
    "uint8": ("|u1", "int64"),
    "bool": ("|b1", "bool"),
}


class TooLarge(Exception):
    """The file would have more bytes than it may."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__(num_bytes)
        self.num_bytes = num_bytes


def write_arrays(file: str, arrays: Mapping[str, Any], max_bytes: int) -> tuple[tuple[ArrayAt, ...], int]:
    """Where each of them is in the file, which is made, and how many bytes it has. Raises TooLarge."""
    places, at = [], 0
    for name, array in arrays.items():
        places.append(ArrayAt(name, array.dtype.name, tuple(map(int, array.shape)), at))
        at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    if at > max_bytes:
        raise TooLarge(at)
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(opened, "wb") as out:
        for array in arrays.values():
            out.write(np.ascontiguousarray(array).data)
            out.write(bytes(-array.nbytes % ALIGNMENT))
    return tuple(places), at


def kept(array: Any) -> Any:
    """In a dtype that towers read."""
    array = np.asarray(array)
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    return array.astype(bool if array.dtype.kind == "b" else np.int64, copy=False)


def received_arrays(arrays: Arrays) -> dict[str, Any]:
    """Raises ClientError without a place."""
    return {name: _received(name, *each) for name, each in arrays.of.items()}


def _received(name: str, dtype: str, shape: tuple[int, ...], buffer: bytes | memoryview) -> Any:
    if dtype not in RECEIVED:
        raise ClientError("", f"has {name} of dtype {shown(dtype)}, must be one of {', '.join(RECEIVED)}")
    if not 1 <= len(shape) <= MAX_DIMENSIONS or min(shape) < 1:
        raise ClientError("", f"has {name} of shape {list(shape)}, must be 1 to {MAX_DIMENSIONS} positive numbers")
    form, own = RECEIVED[dtype]
    needs = math.prod(shape) * np.dtype(form).itemsize
    if needs != len(buffer):
        raise ClientError("", f"has {name} of {len(buffer)} bytes, but {dtype} {list(shape)} has {needs}")
    array: Any = np.frombuffer(buffer, form).reshape(shape)
    if dtype == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if dtype == "bool":
        array = np.frombuffer(buffer, np.uint8).reshape(shape) != 0
    with np.errstate(over="ignore"):
        array = array.astype(own)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ClientError("", f"has {name} with NaN or infinity in it, must be finite")
    if array.dtype.kind == "f" and max(-array.min(), array.max()) > MAX_NUMBER:
        raise ClientError("", f"has {name} with a number outside [-{MAX_NUMBER:g}, {MAX_NUMBER:g}]")
    return array
