"""How much something does, whatever else the machine does: tests bound it where a time would depend on the machine."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


def num_calls(act: Callable[[], object]) -> int:
    """Of functions, Python's and C's."""
    num = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal num
        num += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return num


def num_lines(act: Callable[[], object]) -> int:
    """Of Python, as they are run."""
    num = 0

    def count(_: FrameType, event: str, __: object) -> Any:
        nonlocal num
        num += event == "line"
        return count

    traced = sys.gettrace()
    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(traced)
    return num


def num_bytes(act: Callable[[], object]) -> int:
    """Memory that Python's lines take, each while it runs: a text that grows by pieces counts with every copy."""
    num = held = 0

    def count(_: FrameType, __: str, ___: object) -> Any:
        nonlocal num, held
        now, most = tracemalloc.get_traced_memory()
        num += max(0, most - held)
        held = now
        tracemalloc.reset_peak()
        return count

    traced = sys.gettrace()
    tracemalloc.start()
    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(traced)
        tracemalloc.stop()
    return num


class Compared(str):
    """A text that counts how often any of its kind is compared."""

    num = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.num += 1
        return str(self) == str(other)
