"""Arrays that a client computed in the place of media: the checks that formats share. Each raises ClientError without a
place.
"""

from collections.abc import Mapping
from typing import Any

from ramet.runtime.errors import ClientError

FEATURES = "feature"
Shape = tuple[int | None, ...]  # None: any size


def shaped(arrays: Mapping[str, Any], name: str, shape: Shape) -> Any:
    """The array of this name."""
    if name not in arrays:
        raise ClientError("", f"has no {name!r}, which this model needs")
    found = arrays[name].shape
    if len(found) != len(shape) or any(want is not None and want != have for want, have in zip(shape, found)):
        wanted = ["any" if want is None else str(want) for want in shape]
        raise ClientError("", f"has {name} of shape {list(found)}, must be [{', '.join(wanted)}]")
    return arrays[name]


def floats(arrays: Mapping[str, Any], name: str, shape: Shape) -> Any:
    found = shaped(arrays, name, shape)
    if found.dtype.kind != "f":
        raise ClientError("", f"has {name} of {found.dtype}, must be floats")
    return found


def integers(arrays: Mapping[str, Any], name: str, shape: tuple[int, ...], least: int, most: int) -> Any:
    """int64 in [least, most]."""
    found = shaped(arrays, name, shape)
    if found.dtype.kind not in "iu":
        raise ClientError("", f"has {name} of {found.dtype}, must be integers")
    if found.min() < least or found.max() > most:
        raise ClientError("", f"has {name} {found.tolist()}, must be from {least} to {most}")
    return found.astype("int64")


def check_number(arrays: Mapping[str, Any], name: str, number: int, of: str) -> None:
    """What a client may say of its other arrays is so."""
    if name in arrays and (said := shaped(arrays, name, (1,))[0]) != number:
        raise ClientError("", f"has {name} {said}, but the {of} have {number}")


def check_corners(name: str, found: Any) -> None:
    """[..., height, width] of 0 and 1: each has ones up to a row and a column, in the first of both at least."""
    import numpy as np

    ones = found == 1
    height, width = (ones.any(axis).sum(-1, keepdims=True) for axis in (-1, -2))
    is_row, is_column = np.arange(found.shape[-2]) < height, np.arange(found.shape[-1]) < width
    wanted = is_row[..., None] & is_column[..., None, :]
    if not (found == wanted).all() or not ones.any((-1, -2)).all():
        raise ClientError("", f"has {name} that is not 1 for what is there, which comes first, and 0 for padding")
