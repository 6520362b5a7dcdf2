"""What a kernel moves, counted in Triton's interpreter: each address once, however often programs read or write it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest


@dataclass
class Traffic:
    """Addresses of numbers of so many bytes."""

    loaded: dict[int, list[Any]] = field(default_factory=dict)
    stored: dict[int, list[Any]] = field(default_factory=dict)

    @property
    def read(self) -> int:
        return _bytes(self.loaded)

    @property
    def written(self) -> int:
        return _bytes(self.stored)


def _bytes(addresses: dict[int, list[Any]]) -> int:
    return sum(size * len(np.unique(np.concatenate(parts))) for size, parts in addresses.items())


@contextmanager
def counted() -> Iterator[Traffic]:
    """Of all kernels that are launched inside."""
    from triton.runtime.interpreter import InterpreterBuilder

    traffic = Traffic()

    def count(into: dict[int, list[Any]], pointers: Any, mask: Any) -> None:
        size = pointers.get_element_ty().primitive_bitwidth // 8
        there = np.broadcast_to(mask.data.astype(bool), pointers.data.shape)
        into.setdefault(size, []).append(pointers.data[there].ravel())

    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def loading(builder: Any, pointers: Any, mask: Any, *more: Any) -> Any:
        count(traffic.loaded, pointers, mask)
        return load(builder, pointers, mask, *more)

    def storing(builder: Any, pointers: Any, value: Any, mask: Any, *more: Any) -> Any:
        count(traffic.stored, pointers, mask)
        return store(builder, pointers, value, mask, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_masked_load", loading)
        patch.setattr(InterpreterBuilder, "create_masked_store", storing)
        yield traffic
