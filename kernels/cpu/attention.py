"""Attention by compiled kernels, and the pool of keys and values it reads: attention.cpp, latent.cpp and plan.cpp.

T tokens, R rows, H query heads, G kv heads, D head size, W numbers of a value, S slots.
"""

import ctypes
import weakref
from ctypes import addressof
from typing import Any

import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.cpu.declarations import native
from ramet.kernels.cpu.layers import LayerOps
from ramet.kernels.cpu.native import DTYPES, Ints, column
from ramet.kernels.cpu.structs import AttentionPlan, Operand, Operands, PlannedRows, ScoreRule
from ramet.kernels.reference import HeadNorms, RopeTables

CACHE_INT8 = 3  # of keys and values alone


class AttentionPlanner:
    """Cuts the attention of a step into items (plan.cpp), and owns their arrays."""

    def __init__(self, library: ctypes.CDLL, heads: int, kv_heads: int, head_dim: int) -> None:
        self.handle = native(library, "make_planner")()
        weakref.finalize(self, native(library, "free_planner"), self.handle)
        self.struct = AttentionPlan(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        self.address = addressof(self.struct)


class AttentionOps(LayerOps):
    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
        (tokens, heads, _), half = x.shape, cos.shape[1]
        self.native.rotate(
            DTYPES[x.dtype], x, x.stride(0), cos, sin, positions, tokens, heads, x.stride(1), half, self.threads
        )

    def norm_rope_store(
        self,
        qkv: Tensor,
        heads: int,
        rope: RopeTables,
        positions: Tensor,
        norms: HeadNorms | None,
        keys: Tensor,
        values: Tensor,
        slots: Tensor,
    ) -> None:
        turning = qkv.shape[1] - keys.shape[1]
        if norms is not None:
            self.norm_heads(qkv[:, :heads], norms.q, norms.eps)
            self.norm_heads(qkv[:, heads:turning], norms.k, norms.eps)
            if norms.values:
                self.norm_heads(qkv[:, turning:], None, norms.eps)
        self.rotate(qkv[:, :turning], *rope, positions)
        self.store_kv(qkv[:, heads:turning], qkv[:, turning:], keys, values, slots)

    def store_kv(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """As kernels/reference.py; k and v [T, G, D] may have strided rows. WRITES keys and values."""
        if keys.dtype == torch.float8_e4m3fn:  # no kernel here reads it
            reference.store_kv(k, v, keys, values, slots)
            return
        if keys.dtype == torch.int8:
            self.native.store_kv_int8(
                DTYPES[k.dtype], k, v, k.stride(0), v.stride(0), keys, values, slots, *k.shape, self.threads
            )
            return
        num, width = len(k), k.shape[1] * k.shape[2]
        self.native.store_kv(
            k.element_size(), k, v, k.stride(0), v.stride(0), keys, values, slots, num, width, self.threads
        )

    def store_latents(self, latents: Tensor, turned: Tensor, keys: Tensor, slots: Tensor) -> None:
        """As kernels/reference_latent.py, of one dtype. WRITES keys."""
        size = keys.element_size()
        self.native.store_latents(
            latents, latents.stride(0) * size, latents.shape[-1] * size, turned, turned.stride(0) * size,
            turned.shape[-1] * size, keys, slots, len(slots), self.threads,
        )  # fmt: skip

    def plan(
        self,
        planner: AttentionPlanner,
        table: Tensor,
        rows: Ints,
        first_tokens: Ints,
        num_new: Ints,
        seq_lens: Ints,
        position_offsets: Ints | None = None,
        key_ends: Ints | None = None,
    ) -> None:
        """Cut a step's attention. table [rows of it, L] int32; the columns [R] int32. Good until the next plan.

        key_ends [T] int32: keys that a token sees; None: those up to its own.
        """
        columns = rows, first_tokens, num_new, seq_lens, position_offsets, key_ends
        step = PlannedRows(table.data_ptr(), table.stride(0), *map(column, columns), len(rows), self.threads)
        self.keep(step, planner, table, columns)
        self.native.plan(planner.handle, addressof(step), planner.address)

    def attend(
        self, planner: AttentionPlanner, rule: ScoreRule, q: Tensor, keys: Tensor, values: Tensor, out: Tensor
    ) -> None:
        """WRITES out [T, H, D] for the tokens of the plan; q [T, H, D] may have strided rows.

        keys and values [S, G, D] of q's dtype, or [S, G, D + 4] int8 as store_kv writes them.
        """
        assert keys.dtype in (q.dtype, torch.int8), (keys.dtype, q.dtype)
        kind = DTYPES[q.dtype]
        cached = CACHE_INT8 if keys.dtype == torch.int8 else kind
        self.native.attention(planner.address, addressof(rule), kind, cached, q, q.stride(0), keys, values, out)

    def attend_to_latents(
        self,
        planner: AttentionPlanner,
        scale: float,
        q: tuple[Tensor, Tensor],
        keys: tuple[Tensor, Tensor],
        values: Tensor,
        out: Tensor,
    ) -> None:
        """WRITES out [T, H, W], contiguous, for the tokens of the plan. All are of one dtype.

        q and keys are the parts that stay and those that are rotated: [T, H, ...] and [S, G, ...], the second ones of
        keys for all heads [S, 1, ...]; values [S, G, W]. What starts where the keys do is a part of them. G is 1 or H.
        """
        assert out.is_contiguous() and len({x.dtype for x in (*q, *keys, values, out)}) == 1
        operands = Operands(*(_operand(x) for x in (*q, *keys, values)), out.data_ptr())
        self.keep(operands)
        self.native.latent_attention(planner.address, scale, DTYPES[out.dtype], addressof(operands))


def _operand(x: Tensor) -> Any:
    """x [rows, heads, width] with both of the first strided; one head counts for all."""
    return Operand(x.data_ptr(), x.stride(0), 0 if x.shape[1] == 1 else x.stride(1), x.shape[2])
