"""The client's event loop: uvloop where it is installed. On a small machine the client's cost is measured too."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_fast(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(work)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None  # asyncio's own: slower, not different
    return uvloop.new_event_loop
