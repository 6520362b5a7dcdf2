"""A device that records launches as a GPU does, on the host: a replay calls again what was captured.

Nothing is computed at a capture but once, over garbage, as on a GPU, where what a captured run returns is filled by the
first replay alone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class HostEvent:
    """Everything is done when it is recorded."""

    def __init__(self) -> None:
        self.is_recorded = False

    def record(self) -> None:
        self.is_recorded = True

    def synchronize(self) -> None:
        assert self.is_recorded, "an event is waited for that nothing recorded"


class HostGraph:
    def __init__(self, run: Callable[[], Any], made: tuple[Tensor, ...]) -> None:
        self._run, self._made = run, made

    @torch.inference_mode()
    def replay(self) -> None:
        again = self._run()
        for kept, new in zip(self._made, again if isinstance(again, tuple) else (again,), strict=True):
            kept.copy_(new)


class HostCapture:
    def event(self) -> HostEvent:
        return HostEvent()

    def warm(self, run: Callable[[], object]) -> None:
        run()

    def graph(self, run: Callable[[], Any]) -> tuple[HostGraph, Any]:
        made = run()
        tensors = made if isinstance(made, tuple) else (made,)
        graph = HostGraph(run, tensors)
        for tensor in tensors:
            tensor.zero_()
        return graph, made

    def borrowed(self, tensor: Tensor) -> Tensor:
        return tensor
