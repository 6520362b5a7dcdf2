"""Keys and values of every cached token, one pair of tensors for each layer.

Decides their layout. Knows slots, not who owns them. Slots [0, page_size) are the padding page: nobody is given them,
so a padding row may write there. `keys[layer]` is [S, G, D]: one token is one contiguous run, whatever the page size.
"""

import torch
from torch import Tensor


class KVPool:
    """S = max_total_tokens + page_size slots, G kv heads, D head size. Zeroed lazily by the operating system on cpu."""

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
        self.head_dim = head_dim
        shape = (max_total_tokens + page_size, kv_heads, head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]

    @property
    def num_slots(self) -> int:
        return self.keys[0].shape[0]

    def store(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """k, v [T, G, D] at slots [T] int64."""
        self.keys[layer][slots] = k
        self.values[layer][slots] = v


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, dtype_bytes: int) -> int:
    """Of keys and values over all layers."""
    return 2 * layers * kv_heads * head_dim * dtype_bytes
