"""Keys and values of every cached token, one pair of tensors for each layer.

Decides their layout. Knows slots, not their owners. Slots [0, page_size) are the padding page: they are never
allocated, so a padding row may write there. `keys[layer]` is [S, G, D]: one token is one contiguous run, whatever the
page size. Of int8 it is [S, G, D + 4]: whole numbers of each head, then the float32 that they are multiplied by.
"""

import torch
from torch import Tensor

from ramet.kernels.cpu.memory import huge_zeros


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
        self.keys = [_zeros(shape, dtype, device) for _ in range(layers)]
        self.values = [_zeros(shape, dtype, device) for _ in range(layers)]

    def take_memory(self) -> None:
        """Now, and not when slots are first written: that takes a step 0.1 s for every 2 MiB of all layers."""
        for pool in (*self.keys, *self.values):
            pool.zero_()

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Keys and values of slots source [n] int32 into slots target [n], which are WRITTEN, in every layer."""
        source, target = (slots.long().to(self.keys[0].device) for slots in (source, target))
        for pool in (*self.keys, *self.values):
            pool[target] = pool[source]


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
