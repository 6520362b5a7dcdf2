"""The functions of the library, called with tensors as the C++ declares them.

A pointer is a tensor, whose numbers must be of the declared type, or an address, or None. What calls a function is
compiled from its declaration: looking through the arguments of a call in a loop takes 0.7 us, a third of a small
kernel's time, and the code that is made from names takes 0.1 us.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import partial
from keyword import iskeyword
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels.cpu.declarations import Native, NativeFunction, NativeParameter, functions

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # as vector.h numbers them
ELEMENTS = {  # what a tensor may have that a pointer of this type points to; any tensor is void
    "float": (torch.float32,), "f16": (torch.float16,), "int8_t": (torch.int8,), "uint8_t": (torch.uint8, torch.bool),
    "int32_t": (torch.int32,), "uint32_t": (torch.int32,), "int64_t": (torch.int64,), "uint64_t": (torch.int64,),
}  # fmt: skip
REFUSED = (TypeError, AttributeError, ctypes.ArgumentError, struct.error)
Ints = npt.NDArray[np.int32]
CALL = """
def {name}({names}):
    try:
        return _call({words})
    except _REFUSED:
        _refuse([{names}])
        raise
"""


class Natives:
    """`ops.native.gather(...)` calls `ramet_gather` of the library. Raises TypeError for what that does not take."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Native:
        """The first use of a function; from then on it is an attribute."""
        if name not in functions():
            raise AttributeError(name)
        native = taking_tensors(functions()[name], self.calling(functions()[name]))
        setattr(self, name, native)
        return native

    def calling(self, function: NativeFunction) -> Callable[..., Any]:
        """What is called with the function's addresses and numbers."""
        return function.of(self._library)


def taking_tensors(function: NativeFunction, call: Callable[..., Any]) -> Native:
    """A function with the names of the declaration that hands the addresses of tensors to `call`."""
    names = [f"{each.name}_" if iskeyword(each.name) else each.name for each in function.parameters]
    words = [_word(each, name) for each, name in zip(function.parameters, names, strict=True)]
    made: dict[str, Any] = {**ELEMENTS, "_call": call, "_REFUSED": REFUSED, "_refuse": partial(_refuse, function)}
    exec(CALL.format(name=function.name, names=", ".join(names), words=", ".join(words)), made)
    native: Native = made[function.name]
    return native


def _word(parameter: NativeParameter, name: str) -> str:
    """The code that makes an address of a pointer. An ellipsis stands for other numbers: every call refuses it."""
    if not parameter.is_pointer:
        return name
    address = f"{name}.data_ptr()"
    if parameter.type in ELEMENTS:
        address = f"{address} if {name}.dtype in {parameter.type} else ..."
    return f"0 if {name} is None else {name} if {name}.__class__ is int else {address}"


def _refuse(function: NativeFunction, arguments: Sequence[object]) -> None:
    """Raises TypeError for the first argument that its parameter does not take."""
    for parameter, value in zip(function.parameters, arguments, strict=True):
        if not _takes(parameter, value):
            shown = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else repr(value)
            raise TypeError(f"{function.name}: {parameter.name} is {shown}, must be {parameter}")


def _takes(parameter: NativeParameter, value: object) -> bool:
    if isinstance(value, Tensor):
        return parameter.is_pointer and value.dtype in ELEMENTS.get(parameter.type, (value.dtype,))
    try:
        parameter.ctype.from_param(value)
    except (TypeError, ctypes.ArgumentError):
        return False
    return True


def column(values: Ints | None) -> int | None:
    """The address of a column of int32, which stays where it is as long as calls read it."""
    if values is None:
        return None
    assert values.dtype == np.int32 and values.flags.c_contiguous, (values.dtype, values.strides)
    return values.ctypes.data
