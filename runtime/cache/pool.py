"""Keys and values of every cached token, one pair of tensors for each layer.

Decides their layout. Knows slots, not their owners. Slots [0, page_size) are the padding page: they are never
allocated, so a padding row may write there. `keys[layer]` is [S, G, D]: one token is one contiguous run, whatever the
page size. Of int8 it is [S, G, D + 4]: whole numbers of each head, then the float32 that they are multiplied by.
"""

import math
import sys
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.kernels.cpu.memory import HUGE_PAGE, huge_zeros, take
from ramet.runtime.errors import ConfigError


class KVPool:
    """S = max_total_tokens + page_size slots, G kv heads, D head size."""

    def __init__(
        self,
        *,
        max_total_tokens: int,
        page_size: int,
        layers: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.page_size = page_size
        self.head_dim, self.dtype = head_dim, dtype
        shape = (max_total_tokens + page_size, kv_heads, bytes_per_head(head_dim, dtype) // dtype.itemsize)
        try:
            self.keys = [_zeros(shape, dtype, device) for _ in range(layers)]
            self.values = [_zeros(shape, dtype, device) for _ in range(layers)]
        except OSError as error:  # a limit of addresses, of which the memory plan knows nothing
            size = 2 * layers * math.prod(shape) * dtype.itemsize / (1 << 30)
            raise ConfigError(
                f"no room for a KV pool of {max_total_tokens} tokens, {size:.2f} GiB: {error.strerror} (ulimit -v); "
                "lower --max-total-tokens or --mem-fraction-static"
            ) from None
        self._ahead = MemoryAhead((*self.keys, *self.values)) if device.type == "cpu" else None

    def take_memory(self) -> None:
        """Now, and not when slots are first written: that takes a step 0.1 s for every 2 MiB of all layers."""
        for pool in (*self.keys, *self.values):
            pool.zero_()

    def reach(self, slot: int) -> int:
        """It is about to be written: memory behind it is taken meanwhile. Returns which one to call for next."""
        return sys.maxsize if self._ahead is None else self._ahead.reach(slot)

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Keys and values of slots source [n] int32 into slots target [n], which are WRITTEN, in every layer."""
        source, target = (slots.long().to(self.keys[0].device, non_blocking=True) for slots in (source, target))
        for pool in (*self.keys, *self.values):
            pool[target] = pool[source]


class MemoryAhead:
    """Takes memory for slots of large tensors before they are first written, on a thread that ends when it has.

    Slots are given out from the first on; a step that writes to new pages waits for the system to make them, on all its
    threads. tensors [S, ...] are alike.
    """

    AHEAD_BYTES = 2 * HUGE_PAGE  # of each tensor

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._slot_bytes, self._size = tensors[0].nbytes // len(tensors[0]), tensors[0].nbytes // HUGE_PAGE * HUGE_PAGE
        self._wanted = self._taken = 0  # bytes of each tensor, whole pages
        self._is_possible = self._size >= 2 * HUGE_PAGE  # smaller ones share pages
        self._lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def reach(self, slot: int) -> int:
        """Returns the slot that needs more memory to be taken."""
        page = slot * self._slot_bytes // HUGE_PAGE * HUGE_PAGE
        wanted = min(self._size, page + self.AHEAD_BYTES)
        if not self._is_possible or wanted == self._size == self._wanted:
            return sys.maxsize
        with self._lock:
            self._wanted = max(wanted, self._wanted)
            if self.thread is None and self._taken < self._wanted:
                self.thread = threading.Thread(target=self._take, name="ramet-kv-memory", daemon=True)
                self.thread.start()
        return (self._wanted - self.AHEAD_BYTES + HUGE_PAGE) // self._slot_bytes

    def _take(self) -> None:
        while True:
            with self._lock:
                start, wanted = self._taken, self._wanted
                if start >= wanted or not self._is_possible:
                    self.thread = None
                    return
            for tensor in self._tensors:
                self._is_possible = self._is_possible and take(tensor.data_ptr() + start, HUGE_PAGE)
            self._taken = start + HUGE_PAGE


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """On cpu the operating system's own zero pages, huge where it has them: a slot takes memory when it is first used.

    torch.zeros would write all of them, 3 s for each GiB. With pages of 4 KiB, the first 8,192 tokens of a 160M model
    took 0.6 s for page faults alone.
    """
    return huge_zeros(shape, dtype) if device.type == "cpu" else torch.zeros(shape, dtype=dtype, device=device)


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Of keys and values over all layers."""
    return 2 * layers * kv_heads * bytes_per_head(head_dim, dtype)


def bytes_per_head(head_dim: int, dtype: torch.dtype) -> int:
    """Of one token's keys or values, with their scale."""
    return head_dim * dtype.itemsize + (torch.float32.itemsize if dtype == torch.int8 else 0)
