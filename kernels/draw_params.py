"""The sampling parameters that every draw applies, as columns: one value for each of Q rows.

This is the one list of them. COLUMNS says how each is stored and which value asks for nothing; kernels/reference.py,
kernels/logits_epilogue.py and kernels/cpu/draw.cpp hold what each does. Other modules carry the columns as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

A = TypeVar("A")  # an array of the host, or a tensor of the logits' device
B = TypeVar("B")

COLUMNS: dict[str, tuple[type, float]] = {  # type on the host, value that asks for nothing
    "temperature": (np.float32, 0),
    "top_k": (np.int64, 0),
    "top_p": (np.float32, 1),
    "min_p": (np.float32, 0),
    "seeds": (np.uint64, 0),
}


@dataclass(frozen=True, slots=True)
class DrawParams(Generic[A]):
    """How each of Q rows draws its tokens."""

    temperature: A  # [Q] 0 takes the best token
    top_k: A  # [Q] 0 is off
    top_p: A  # [Q] 1 is off
    min_p: A  # [Q] 0 is off
    seeds: A  # [Q] a device has the bits of the uint64 as int64

    def map(self, change: Callable[[A], B]) -> "DrawParams[B]":
        return DrawParams(
            change(self.temperature), change(self.top_k), change(self.top_p), change(self.min_p), change(self.seeds)
        )


HostDrawParams = DrawParams[npt.NDArray[Any]]


def neutral(num: int) -> HostDrawParams:
    """`num` rows that take their best token."""
    return DrawParams(*(np.full(num, value, kind) for kind, value in COLUMNS.values()))


def cuts_by_rank(params: HostDrawParams) -> bool:
    """Some row leaves tokens out by their rank."""
    return bool(((params.top_k > 0) | (params.top_p < 1)).any())


def cuts_below_best(params: HostDrawParams) -> bool:
    """Some row leaves out tokens that are too unlikely beside the best one."""
    return bool((params.min_p > 0).any())
