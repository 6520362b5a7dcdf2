"""Triton, or what stands in its place where it is not installed: modules of kernels are imported all the same.

A kernel that is launched without it says what is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

MISSING = "the kernels of a GPU need the package triton, which is not installed: pip install triton"


class Missing:
    """Whatever a module asks of Triton while it is imported."""

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Missing:
        return self

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, grid: Any) -> Any:
        """Of a kernel: what launches it."""
        raise ModuleNotFoundError(MISSING, name="triton")


try:
    triton: Any = import_module("triton")
    tl: Any = import_module("triton.language")
except ModuleNotFoundError as error:
    if error.name != "triton":
        raise
    triton = tl = Missing()
