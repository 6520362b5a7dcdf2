"""What one layer's attention is asked in one step, as the kernels of a GPU and their oracle take it.

T new tokens over all rows, R rows, H query heads, G kv heads, D head size, S slots of the pool, L longest context.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """What a layer does with its scores. Attention is causal, and over the whole row but for the window."""

    scale: float  # of queries times keys
    window: int | None = None  # keys that a query sees, its own included; None: all before it
    softcap: float | None = None  # scaled scores s become softcap * tanh(s / softcap)


class AttendCall(NamedTuple):
    """Queries of new tokens, and where keys and values are: those of the new tokens are in the pool as well."""

    q: Tensor  # [T, H, D], rows may be strided
    k: Tensor | None  # [T, G, D], rows may be strided; None: the layer reads keys and values of another layer
    v: Tensor | None  # [T, G, D], strided as k
    keys: Tensor  # [S, G, D] of the dtype of q, of float8_e4m3fn, or of int8 as `store_kv` writes them
    values: Tensor  # [S, G, D] likewise
    table: Tensor  # [rows of the table, L] int32: the slot of every position
    rule: AttentionRule
    sinks: Tensor | None = None  # [H]: a score of each head that takes a part of the weights and has no value (gpt-oss)

    def of_tokens(self, at: slice) -> "AttendCall":
        """The call for some of the T new tokens alone."""
        k, v = (None if x is None else x[at] for x in (self.k, self.v))
        return self._replace(q=self.q[at], k=k, v=v)


class Extends(NamedTuple):
    """Rows with more than one new token, each column on the device: of the n tiles that a GPU's kernel has, too.

    Row r owns tokens [firsts[r], firsts[r] + num_new[r]) of the T, which are the last of its seq_lens[r].
    """

    rows: Tensor  # [R] int32, of the table
    firsts: Tensor  # [R] int32, of the T new tokens
    num_new: Tensor  # [R] int32
    seq_lens: Tensor  # [R] int32
    tile_rows: Tensor  # [n] int32, index into the R
    tile_starts: Tensor  # [n] int32, of the row's new tokens
