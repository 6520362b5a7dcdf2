"""Triton, or what stands in its place where it is not installed: modules of kernels are imported all the same."""

from importlib import import_module
from typing import Any

from ramet.kernels.without_triton import MissingTriton

try:
    triton: Any = import_module("triton")
    tl: Any = import_module("triton.language")
except ModuleNotFoundError as error:
    if error.name != "triton":
        raise
    triton = tl = MissingTriton()
