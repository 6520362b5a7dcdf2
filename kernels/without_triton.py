"""Stands in the place of Triton where that is not installed. A kernel that is launched then names what is missing."""

from __future__ import annotations

from typing import Any

MISSING = "the kernels of a GPU need the package triton, which is not installed: pip install triton"


class MissingTriton:
    """Whatever a module asks of Triton while it is imported."""

    def __getattr__(self, name: str) -> MissingTriton:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> MissingTriton:
        return self

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, grid: Any) -> Any:
        """What launches a kernel."""
        raise ModuleNotFoundError(MISSING, name="triton")
