"""Keys and values of every cached token, one pair of tensors for each layer, which may differ in shape.

Decides their layout. Knows slots, not their owners. Slots [0, page_size) are the padding page: they are never
allocated, so a padding row may write there. `keys[layer]` is [S, G, D]: one token is one contiguous run, whatever the
page size. Of int8 it is [S, G, D + 4]: whole numbers of each head, then the float32 that they are multiplied by.
"""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.cpu.memory import HUGE_PAGE, give_back, huge_zeros, take
from ramet.runtime.cache.host_view import is_host
from ramet.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KVShape:
    """What the pool keeps of a token in one layer."""

    heads: int  # 0: nothing is kept
    key: int  # numbers of each head
    value: int

    @classmethod
    def of(cls, heads: int, size: int) -> "KVShape":
        """Keys and values alike."""
        return cls(heads, size, size)


class KVPool:
    """S = max_total_tokens + page_size slots, G kv heads, D head size."""

    def __init__(
        self,
        *,
        max_total_tokens: int,
        page_size: int,
        layers: Sequence[KVShape],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.page_size, self.dtype = page_size, dtype
        self.layers = tuple(layers)
        slots = max_total_tokens + page_size

        def zeros(heads: int, size: int) -> Tensor:
            return zeros_of((slots, heads, bytes_per_head(size, dtype) // dtype.itemsize), dtype, device)

        try:
            self.keys = [zeros(layer.heads, layer.key) for layer in layers]
            self.values = [zeros(layer.heads, layer.value) for layer in layers]
        except OSError as error:  # a limit of addresses, of which the memory plan knows nothing
            size = slots * bytes_per_token(layers, dtype) / (1 << 30)
            raise ConfigError(
                f"no room for a KV pool of {max_total_tokens} tokens, {size:.2f} GiB: {error.strerror} (ulimit -v); "
                "lower --max-total-tokens or --mem-fraction-static"
            ) from None
        self._ahead = memory_ahead((*self.keys, *self.values)) if is_host(device) else []

    @property
    def shapes(self) -> tuple[KVShape, ...]:
        """The shapes that layers have, each once."""
        return tuple(dict.fromkeys(of for of in self.layers if of.heads))

    @property
    def heads_are(self) -> str:
        """In words: "head size 64"."""
        sizes = dict.fromkeys(str(of.key) if of.key == of.value else f"{of.key}/{of.value}" for of in self.shapes)
        return f"head size{'s' * (len(sizes) > 1)} {', '.join(sizes)}"

    def of(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer that keeps some, [S, G, D] each."""
        return self.keys[layer], self.values[layer]

    def take_memory(self) -> None:
        """Now, and not when slots are first written: that takes a step 0.1 s for every 2 MiB of all layers."""
        for pool in (*self.keys, *self.values):
            pool.zero_()

    @property
    def num_bytes(self) -> int:
        return sum(pool.nbytes for pool in (*self.keys, *self.values))

    def give_back(self) -> None:
        """Its memory to the system, on a CPU: every slot is zeros then, and takes memory when it is written."""
        for ahead in self._ahead:
            ahead.forget()
        for pool in (*self.keys, *self.values):
            give_back(pool)

    def reach(self, slot: int) -> int:
        """It is about to be written: memory behind it is taken meanwhile. Returns which one to call for next."""
        return min((ahead.reach(slot) for ahead in self._ahead), default=sys.maxsize)

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Keys and values of slots source [n] int32 into slots target [n], which are WRITTEN, in every layer."""
        source, target = (slots.long().to(self.keys[0].device, non_blocking=True) for slots in (source, target))
        for pool in (*self.keys, *self.values):
            pool[target] = pool[source]


def memory_ahead(tensors: Sequence[Tensor]) -> "list[MemoryAhead]":
    """One for those of each size: [S, ...]."""
    alike: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        alike.setdefault(tensor.nbytes, []).append(tensor)
    return [MemoryAhead(group) for size, group in alike.items() if size]


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

    def forget(self) -> None:
        """Memory that was taken is about to be given back. Returns when none is taken any more."""
        with self._lock:
            self._wanted, thread = self._taken, self.thread
        if thread is not None:
            thread.join()
        self._wanted = self._taken = 0

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


def zeros_of(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """On cpu the operating system's own zero pages, huge where it has them: a slot takes memory when it is first used.

    torch.zeros would write all of them, 3 s for each GiB. With pages of 4 KiB, the first 8,192 tokens of a 160M model
    took 0.6 s for page faults alone.
    """
    if is_host(device) and 0 not in shape:
        return huge_zeros(shape, dtype)
    return torch.zeros(shape, dtype=dtype, device=device)


def bytes_per_token(layers: Sequence[KVShape], dtype: torch.dtype) -> int:
    """The bytes of a token's keys and values over all layers."""
    return sum(of.heads * (bytes_per_head(of.key, dtype) + bytes_per_head(of.value, dtype)) for of in layers)


def bytes_per_head(size: int, dtype: torch.dtype) -> int:
    """The bytes of the `size` numbers of one token's key or value, with their scale."""
    return size * dtype.itemsize + (torch.float32.itemsize if dtype == torch.int8 and size else 0)
