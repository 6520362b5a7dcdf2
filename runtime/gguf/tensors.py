"""Numbers of a GGUF file: rows of a tensor as they lie there, or as float32. Knows no model.

Blocks of few bits are widened by the `gguf` package of llama.cpp, which is imported where a file has some.
"""

from typing import Any

import numpy as np

from ramet.runtime.errors import ConfigError
from ramet.runtime.file_bytes import FileBytes
from ramet.runtime.gguf.file import TYPES, GgufHeader, TensorPlace, open_again

PLAIN: dict[str, np.dtype[Any]] = {  # BF16: its bits
    "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"),
}  # fmt: skip


def plain_rows(data: FileBytes, place: TensorPlace) -> np.ndarray[Any, Any] | None:
    """[..., N] in the dtype of PLAIN; None: the numbers are in blocks."""
    if place.type_name not in PLAIN:
        return None
    return data.take(place.start, place.num_bytes).view(PLAIN[place.type_name]).reshape(place.shape)


def block_rows(data: FileBytes, place: TensorPlace) -> np.ndarray[Any, Any]:
    """[..., bytes of a row]"""
    _, of_block, bytes_of_block = TYPES[place.type]
    shape = (*place.shape[:-1], place.shape[-1] // of_block * bytes_of_block)
    return data.take(place.start, place.num_bytes).reshape(shape)


def widened(rows: np.ndarray[Any, Any], kind: int) -> np.ndarray[Any, Any]:
    """Rows of `block_rows` -> [..., N] float32. Raises ConfigError where the package is not there or cannot do it."""
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError as error:
        name = TYPES[kind][0]
        raise ConfigError(f'weights in {name} need the gguf package ({error}): pip install "ramet[gguf]"') from None
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found and named later
        return np.asarray(dequantize(rows, GGMLQuantizationType(kind)), np.float32)


def read_floats(header: GgufHeader, name: str) -> list[float]:
    """A small tensor of float32. Raises ConfigError."""
    place = header.places.get(name)
    if place is None or place.type_name != "F32":
        raise ConfigError(f"{header.path}: tensor {name} must be there, in F32")
    with open_again(header) as data:
        rows = plain_rows(data, place)
    assert rows is not None, "F32 is plain"
    return [float(value) for value in rows.ravel()]
