"""What a weight can be: a finite number in a floating-point dtype that the model's dtype can hold.

Decides what is refused while tensors are copied. A chunk is looked at just after it was copied, while it is in the
processor's cache.
"""

import torch
from torch import Tensor

from ramet.runtime.errors import ConfigError
from ramet.runtime.weights.staging import Staging

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
CHUNK_BYTES = 1 << 19  # of the target


def check_dtype(dtype: torch.dtype, named: str) -> None:
    """Raises ConfigError for integers, booleans, and floats of 8 bits, which mean nothing without their scales."""
    if dtype not in DTYPES:
        raise ConfigError(f"{named} is {_name(dtype)}, weights must be bfloat16, float16, float32 or float64")


def copy_weights(target: Tensor, source: Tensor, named: str, staging: Staging | None = None) -> None:
    """WRITES target, of source's shape [rows, ...], where `staging` is for a device by copies that it queues.

    Raises ConfigError for the first number that is no weight.
    """
    if staging is None:
        return _copy_chunks(target, source, named, 0)
    rows = staging.rows_of_part(target)
    for start in range(0, len(target), rows):
        part = target[start : start + rows]
        taken = staging.take(part)
        _copy_chunks(taken, source[start : start + rows], named, start)
        staging.send(part, taken)


def _copy_chunks(target: Tensor, source: Tensor, named: str, first_row: int) -> None:
    """On the host. Their rows are `first_row` and those behind it of what is `named`."""
    rows = max(1, CHUNK_BYTES * len(target) // max(1, target.nbytes))
    for start in range(0, len(target), rows):
        chunk, original = target[start : start + rows], source[start : start + rows]
        chunk.copy_(original)
        if not _is_finite(chunk):
            raise ConfigError(f"{named} {_why(chunk, original, first_row + start)}")


def _is_finite(chunk: Tensor) -> bool:
    """A sum with a number that is not finite is not finite, and is the fastest to compute. A sum of finite numbers may
    overflow: then the smallest and the largest decide, which are NaN if a number is.
    """
    return bool(chunk.sum().isfinite()) or all(bool(bound.isfinite()) for bound in chunk.aminmax())


def _why(chunk: Tensor, original: Tensor, first_row: int) -> str:
    place = (~chunk.isfinite()).nonzero()[0].tolist()
    value = original[tuple(place)].item()
    place[0] += first_row
    if original.dtype.is_floating_point and not torch.tensor(value, dtype=torch.float64).isfinite():
        return f"is {value} at {place}, weights must be finite"
    return f"is {value} at {place}, which {_name(chunk.dtype)} cannot hold: choose another --dtype"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
