"""Attention to latents: what heads ask of a backend, and the backend in plain torch.

A pool's key is a latent and a rotated key behind it, one for all heads; its value is the latent. A query of a head that
meets latents has as many numbers. The latents of a row may be expanded to keys and values of its heads instead, which
takes fewer products where many new tokens meet few cached ones (`expands`).
T new tokens, R rows, H heads, L numbers of a latent, P of a rotated key, C of the rest of a query, V of a value.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels.reference_latent import latent_attention
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs, LayerAttention, StepBackend
from ramet.runtime.cache.pool import KVPool

MAX_EXPANDED_BYTES = 64 << 20  # keys and values of the heads of one row in one layer


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """Numbers of a token, or of one of its heads."""

    latent: int  # of keys and values of all heads
    rotated: int  # of the key that turns, of all heads, and of each query
    content: int  # of a query, beside
    value: int
    query_latent: int | None  # None: queries are made without one
    in_pairs: bool = True  # a checkpoint turns neighbours together

    @property
    def key(self) -> int:
        """What is cached."""
        return self.latent + self.rotated

    @property
    def query(self) -> int:
        return self.content + self.rotated

    @property
    def expanded(self) -> int:
        """What a latent gives each head."""
        return self.content + self.value


class Heads(Protocol):
    """The weights of a layer: runtime/layers/latent_attention.py."""

    def absorbed(self, q: Tensor) -> Tensor: ...

    def values(self, x: Tensor) -> Tensor: ...

    def expanded(self, latents: Tensor) -> Tensor: ...


class LatentBackend(StepBackend):
    """Every query meets latents, which a subclass attends to in `meet`."""

    def __init__(self, pool: KVPool, layers: Sequence[LayerAttention], sizes: LatentSizes) -> None:
        self.pool, self.layers, self.sizes = pool, layers, sizes

    def cache(self, layer: int) -> tuple[Tensor, Tensor]:
        keys = self.pool.keys[layer]
        return keys, keys[..., : self.sizes.latent]

    def attend(self, q: Tensor, heads: Heads, layer: int, inputs: ForwardInputs) -> Tensor:
        """q [T, H, C + P], whose last numbers are rotated -> [T, H, V]. Latents are in the pool at inputs.slots."""
        content = self.sizes.content
        return heads.values(self.meet(heads.absorbed(q[..., :content]), q[..., content:], layer, inputs))

    @abstractmethod
    def meet(self, absorbed: Tensor, turned: Tensor, layer: int, inputs: ForwardInputs) -> Tensor:
        """absorbed [T, H, L] and turned [T, H, P], the two parts of queries that meet latents -> [T, H, L]"""


class LatentReference(LatentBackend):
    name = "reference"

    def plan(self, inputs: ForwardInputs) -> None:
        self._table = inputs.table[inputs.rows.tolist()]  # [R, K]
        self._num_new, self._seq_lens = inputs.num_new.tolist(), inputs.seq_lens.tolist()

    def meet(self, absorbed: Tensor, turned: Tensor, layer: int, inputs: ForwardInputs) -> Tensor:
        q, scale = torch.cat((absorbed, turned), dim=-1), self.layers[layer].scale
        keys, latent = self.pool.keys[layer], self.sizes.latent
        return latent_attention(q, keys, latent, self._table, self._num_new, self._seq_lens, scale)


def most_expanded(heads: int, sizes: LatentSizes, itemsize: int) -> int:
    """Tokens of a row that may be expanded."""
    return MAX_EXPANDED_BYTES // (heads * sizes.expanded * itemsize)


def expanded_bytes(context: int, heads: int, sizes: LatentSizes, itemsize: int) -> int:
    """Bytes of the longest row that is expanded: its latents, and keys and values of its heads."""
    tokens = min(context, most_expanded(heads, sizes, itemsize))
    return tokens * (sizes.key + heads * sizes.expanded) * itemsize


def expands(num_new: Ints, seq_lens: Ints, sizes: LatentSizes) -> npt.NDArray[np.bool_]:
    """Which rows [R] take fewer products with keys and values of their heads than with latents."""
    new, cached = num_new.astype(np.int64), (seq_lens - num_new).astype(np.int64)
    pairs = new * cached + new * (new + 1) // 2
    more_of_each_pair = 2 * sizes.latent - sizes.expanded
    return pairs * more_of_each_pair > cached * (sizes.latent * sizes.expanded)
