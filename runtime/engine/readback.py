"""Device tensors on their way to the host."""

import torch
from torch import Tensor


class Readback:
    """Copies of tensors, queued right behind the step that made them: waiting for them waits for no later step."""

    def __init__(self, *tensors: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if tensors[0].device.type == "cpu":
            self._host = tensors
            return
        self._host = tuple(torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors)
        for host, tensor in zip(self._host, tensors, strict=True):
            host.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def wait(self) -> tuple[Tensor, ...]:
        """The copies, in order, once the device has made them."""
        if self._event is not None:
            self._event.synchronize()
        return self._host
