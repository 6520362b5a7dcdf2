"""What one step looks like to the model, and what an attention backend does with it.

Decides the types that models, layers and backends share. Knows no scheduler and no weights.
R rows, T new tokens over all rows, Q rows that draw, L longest context, H query heads, G kv heads, D head size.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.attention_call import AttendCall, AttentionRule, Extends
from ramet.kernels.reference_delta import StateRows
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.pool import KVPool


@dataclass(frozen=True, slots=True)
class ForwardInputs:
    """One step on the device, with the host's copy of what backends plan by. Rows with one new token come first."""

    token_ids: Tensor  # [T] int64
    positions: Tensor  # [T] int64, index of each token in its row of the table
    slots: Tensor  # [T] int64, where each new token's keys and values go
    last_tokens: Tensor  # [Q] int64, index into T of the token whose logits are drawn from
    table: Tensor  # [rows of the table, L] int32, the slot of every position of every row; new tokens included
    rows: Ints  # [R] host
    num_new: Ints  # [R] host, >= 1
    seq_lens: Ints  # [R] host, new tokens included
    num_decode: int  # rows [0, num_decode) have one new token
    embeds: tuple[tuple[int, Tensor], ...] = ()  # (first of the T, [n, N or N * levels]): in the place of ids
    position_offsets: Ints | None = None  # [R] host; above 0: the row has parallel contexts; None: no row has
    rope_positions: Tensor | None = None  # [T] int64, positions less the offset of their row; None: no row has one
    # [3, T] int64: time, height and width of each token, where some token is a picture's; then `rope_positions` is the
    # token's index into the T; None: all three are its position
    mrope_positions: Tensor | None = None
    placed: tuple[Tensor, Tensor] | None = None  # of a step that a GPU replays: rows and seq_lens [R] int32 are there
    state_rows: StateRows | None = None  # which states the rows have; None: no layer has states
    extends: Extends | None = None  # of a step with prompts that a GPU replays: all rows are there
    # [T] int32 host, number of keys that each token attends to: its own, and maybe some behind it; None: causal
    key_ends: Ints | None = None
    adapters: Tensor | None = None  # [T] int32, the slot of each token's adapter, 0 for none; None: no token has one

    @property
    def num_tokens(self) -> int:
        return self.token_ids.shape[0]

    @property
    def is_text(self) -> bool:
        """Every token is an id at one position."""
        return not self.embeds and self.mrope_positions is None

    def drawing(self, draws: Ints) -> "ForwardInputs":
        """The last tokens of the rows `draws` [Q] alone, as a step: what is before them is in the pool by then."""
        at, rows = self.last_tokens, self.rows[draws]
        return ForwardInputs(
            token_ids=self.token_ids.index_select(0, at),
            positions=self.positions.index_select(0, at),
            slots=self.slots.index_select(0, at),
            last_tokens=torch.arange(len(at), device=at.device),
            table=self.table,
            rows=rows,
            num_new=np.ones(len(rows), np.int32),
            seq_lens=self.seq_lens[draws],
            num_decode=len(rows),
            position_offsets=None if self.position_offsets is None else self.position_offsets[draws],
            rope_positions=None if self.rope_positions is None else self.rope_positions.index_select(0, at),
            mrope_positions=self.mrope_positions,
            adapters=None if self.adapters is None else self.adapters.index_select(0, at),
        )


@dataclass(frozen=True, slots=True)
class LayerAttention(AttentionRule):
    """The rule of one layer of a model, and which keys and values it reads."""

    sinks: bool = False  # a score of each head, learnt, takes its part of the weights and has no value (gpt-oss)
    keys_of: int | None = None  # the layer whose keys and values it reads; None: it has its own
    value_size: int | None = None  # leading numbers of a key that are its value; None: values are kept by themselves

    def source(self, layer: int) -> int:
        """The layer whose keys and values layer number `layer` reads."""
        return layer if self.keys_of is None else self.keys_of


class StepBackend(ABC):
    """Owns the way to the KV pool. `plan` once for a step, then every layer of that step attends."""

    name: ClassVar[str]  # as --attention-backend spells it

    @abstractmethod
    def plan(self, inputs: ForwardInputs) -> None: ...

    @abstractmethod
    def cache(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer in the pool, [S, G, D] each."""


class AttentionBackend(StepBackend):
    """Attention to keys and values of heads. A subclass computes one layer's in `attend`."""

    def __init__(self, pool: KVPool, layers: Sequence[LayerAttention]) -> None:
        self.pool, self.layers = pool, layers
        self._cached = [pool.of(layer.source(i)) for i, layer in enumerate(layers)]

    def cache(self, layer: int) -> tuple[Tensor, Tensor]:
        return self._cached[layer]

    @final
    def forward(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        layer: int,
        inputs: ForwardInputs,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attend causally. q [T, H, D], k and v [T, G, D], rows may be strided -> [T, H, D].

        k and v are what the pool has at inputs.slots by now; None of a layer that reads those of another. sinks [H]
        float32, of a layer that has some: always in the same memory.
        """
        keys, values = self._cached[layer]
        call = AttendCall(q, k, v, keys, values, inputs.table, self.layers[layer], sinks)
        return self.attend(layer, call, inputs)

    @abstractmethod
    def attend(self, layer: int, call: AttendCall, inputs: ForwardInputs) -> Tensor:
        """Layer number `layer` of the step that was planned: [T, H, D]."""
