"""Not a fake: cases of attention to latents over a pool with scattered slots, for kernels on any device.

R rows, T new tokens, H heads, L numbers of a latent, P of a rotated key.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.attention_call import Extends
from ramet.kernels.decode_attention import plan_decode
from ramet.kernels.extend_attention import ExtendBlocks
from ramet.kernels.latent_attention import (
    decode_latents,
    extend_latents,
    latent_scratch,
    tokens_of_latent_tile,
)
from ramet.kernels.reference_latent import latent_attention
from ramet.kernels.tuned import DecodeTuning, ExtendTuning, latent_extend_tuning, processor_of

Rows = list[tuple[int, int]]  # cached and new tokens of each


@dataclass
class LatentCase:
    """Rows over one pool of latents."""

    rows: Rows
    heads: int = 4
    latent: int = 64
    rotated: int = 16
    dtype: torch.dtype = torch.float32
    page: int = 1
    size: float = 1.0  # of queries, so that weights are spread or lie on few keys

    def on(self, device: torch.device, seed: int = 0) -> "PlacedLatents":
        chance = torch.Generator().manual_seed(seed)
        lengths = [cached + new for cached, new in self.rows]
        pages = [-(-length // self.page) for length in lengths]
        order = torch.randperm(sum(pages) + 3, generator=chance)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=chance).to(self.dtype)

        total, key = sum(new for _, new in self.rows), self.latent + self.rotated
        keys = random(self.page * len(order), 1, key)
        # heads before tokens, as a product for each head makes them, and beside numbers that are not read
        q = random(self.heads, total, self.latent).transpose(0, 1) * self.size
        turned = (random(total, self.heads, 3 + self.rotated) * self.size)[..., 3:]
        table = torch.zeros((len(lengths) + 2, max(lengths) + 5), dtype=torch.int32)
        rows = torch.randperm(len(table), generator=chance)[: len(lengths)].int()
        page = 0
        for row, length, num in zip(rows.tolist(), lengths, pages, strict=True):
            slots = order[page : page + num, None] * self.page + torch.arange(self.page)
            table[row, :length], page = slots.flatten()[:length].int(), page + num
        tensors = [x.to(device) for x in (q, turned, keys, table, rows)]
        return PlacedLatents(self, lengths, [new for _, new in self.rows], *tensors)


@dataclass
class PlacedLatents:
    """The tensors of a case on a device."""

    case: LatentCase
    lengths: list[int]
    num_new: list[int]
    q: Tensor  # [T, H, L]
    turned: Tensor  # [T, H, P]
    keys: Tensor
    table: Tensor
    rows: Tensor

    def alone(self, row: int) -> "PlacedLatents":
        first, new = sum(self.num_new[:row]), self.num_new[row]
        own = slice(first, first + new)
        return replace(
            self, lengths=[self.lengths[row]], num_new=[new], q=self.q[own], turned=self.turned[own],
            rows=self.rows[row : row + 1],
        )  # fmt: skip

    @property
    def scale(self) -> float:
        return float((self.case.latent + self.case.rotated) ** -0.5)

    @property
    def out(self) -> Tensor:
        return torch.full(self.q.shape, float("nan"), dtype=self.q.dtype, device=self.q.device)

    def column(self, numbers: object) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=self.q.device)

    def expected(self) -> Tensor:
        of = self.table[self.rows.long()], self.num_new, self.lengths, self.scale
        return latent_attention(torch.cat((self.q, self.turned), -1), self.keys, self.case.latent, *of)

    def decoded(self, tuning: DecodeTuning | None = None) -> Tensor:
        case, out, device = self.case, self.out, self.q.device
        scratch = latent_scratch(len(self.lengths), case.heads, case.latent, case.dtype, device)
        plan_decode(self.rows, self.column(self.lengths), scratch)
        decode_latents(self.q, self.turned, self.keys, self.table, out, scratch, self.scale, tuning)
        assert not scratch.arrived.any(), "the counters of rows are as they were"
        return out

    def extended(self, tuning: ExtendTuning | None = None, further_tiles: int = 0) -> Tensor:
        """`further_tiles`: of the last row, behind its tokens, as a graph has them."""
        tuning, out = tuning or latent_extend_tuning(self.q.dtype.itemsize, processor_of(self.q.device)), self.out
        num_new = np.array(self.num_new, np.int32)
        tokens = tokens_of_latent_tile(self.case.heads, tuning)
        tiles = ExtendBlocks.of(num_new, np.array(self.lengths, np.int32), tokens)
        last = len(num_new) - 1
        tile_rows = [*tiles.rows.tolist(), *[last] * further_tiles]
        tile_starts = [*tiles.starts.tolist(), *[int(num_new[last])] * further_tiles]
        columns = (np.cumsum(num_new) - num_new).tolist(), self.num_new, self.lengths, tile_rows, tile_starts
        rows = Extends(self.rows, *map(self.column, columns))
        extend_latents(self.q, self.turned, self.keys, self.table, rows, out, self.scale, tuning)
        return out
