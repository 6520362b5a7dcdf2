"""A step's tokens on their way to the host: on a stream of their own, so the device goes on with the next step.

Decides what waits for what: a copy for the step that made its tensors, the next step that writes to the same place for
the copy, and the host for nothing but the copies that it asks for.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


class Copies:
    """Of one runner on a GPU."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._last: torch.cuda.Event | None = None

    def begin(self, pairs: Iterable[tuple[Tensor, Tensor]], ended: torch.cuda.Event) -> None:
        """Of (on the host, pinned; on the device), behind what the current stream does. Records `ended` behind them."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for host, device in pairs:
                host.copy_(device, non_blocking=True)
            ended.record()
        self._last = ended

    def precede(self) -> None:
        """What the current stream does from now on comes behind the copies that were begun."""
        if self._last is not None:
            torch.cuda.current_stream().wait_event(self._last)


class Readback:
    """Tensors on their way to the host: waiting for them waits for no later step."""

    def __init__(self, tensors: tuple[Tensor, ...], copies: Copies) -> None:
        self._held = tensors  # while they are copied, their memory is given to nobody else
        self._host = tuple(torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors)
        self._ended = torch.cuda.Event()
        copies.begin(zip(self._host, tensors, strict=True), self._ended)

    def wait(self) -> tuple[Tensor, ...]:
        """On the host, in order."""
        self._ended.synchronize()
        self._held = ()
        return self._host
