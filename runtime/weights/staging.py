"""Weights on their way to a GPU, through pinned memory: one part is copied to the device while the next is read.

Decides how large a part is, and that a buffer is written again once the copy from it has ended. Knows no checkpoint.
"""

import torch
from torch import Tensor

BUFFER_BYTES = 32 << 20  # a copy of 32 MiB takes 0.6 ms at 50 GB/s, against which its launch is nothing
BUFFERS = 2


class Staging:
    """`BUFFERS` of pinned memory, in turn."""

    def __init__(self) -> None:
        self._buffers = [torch.empty(BUFFER_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(BUFFERS)]
        self._sent: list[torch.cuda.Event | None] = [None] * BUFFERS
        self._place = 0

    def rows_of_part(self, target: Tensor) -> int:
        """Of a tensor [rows, ...], as many as a buffer holds; one at least is expected to fit."""
        return max(1, BUFFER_BYTES * len(target) // max(1, target.nbytes))

    def take(self, target: Tensor) -> Tensor:
        """On the host, of target's shape and dtype, for numbers that `send` copies there. Waits for the copy before."""
        if target.nbytes > BUFFER_BYTES:  # a row of 32 MiB: no model has one
            return torch.empty(target.shape, dtype=target.dtype)
        if (event := self._sent[self._place]) is not None:
            event.synchronize()
        return self._buffers[self._place][: target.nbytes].view(target.dtype).view(target.shape)

    def send(self, target: Tensor, taken: Tensor) -> None:
        """WRITES target on the device, behind what its stream does; `taken` is from the last `take`."""
        target.copy_(taken, non_blocking=True)
        event = self._sent[self._place] = torch.cuda.Event()
        event.record()
        self._place = (self._place + 1) % BUFFERS
