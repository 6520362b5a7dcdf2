"""The inputs of a decode step that is captured: buffers that stay where they are, which every replay reads.

Decides their layout. n rows of a captured step. Padding rows compute token 0 at position 0 into slot 0 of row 0.
"""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels.draw_params import COLUMNS, DrawParams
from ramet.kernels.reference_delta import PlacedRows, StateRows
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.cache.host_view import host_view, is_host


class Columns:
    """What `size` decoding rows read, a number each, in one piece of memory."""

    KINDS: ClassVar = (
        *((n, torch.int64) for n in ("ids", "positions", "slots", "drawn_rows", "drawn_positions")),
        *((n, torch.int32) for n in ("rows", "seq_lens", "position_offsets", "relayed", "penalty_slots", "adapters")),
        *((n, torch.float32) for n in ("frequency", "presence", "repetition")),
        *((n, torch.float32 if kind is np.float32 else torch.int64) for n, (kind, _) in COLUMNS.items()),
    )
    ALIGNED = 16  # bytes, which kernels read at once

    def __init__(self, size: int, device: torch.device, pinned: bool = False) -> None:
        """`pinned`: on the host, where a GPU can copy them from while the host goes on."""
        spans = [-(-size * kind.itemsize // self.ALIGNED) * self.ALIGNED for _, kind in self.KINDS]
        self.memory = torch.zeros(sum(spans), dtype=torch.uint8, device=device, pin_memory=pinned)
        self.tensors: dict[str, Tensor] = {}
        start = 0
        for (name, kind), span in zip(self.KINDS, spans, strict=True):
            self.tensors[name] = self.memory[start : start + span].view(kind)[:size]
            start += span
        self.tensors["seq_lens"].fill_(1)
        self.tensors["repetition"].fill_(1)  # not read where a row has no penalty slot, but by what it would divide
        self.has_extras = False  # rows ask for more than their draw, or bring more than their token
        self.bytes = host_view(self.memory)  # None: a GPU's, which the host does not fill
        self.of: dict[str, npt.NDArray[Any]] = {}
        if self.bytes is not None:
            self.of = {name: tensor.numpy() for name, tensor in self.tensors.items()}

    def clear(self) -> None:
        """WRITES padding in every row, on the host."""
        assert self.bytes is not None, "columns are filled on the host"
        self.bytes[:] = 0
        self.of["seq_lens"][:] = self.of["repetition"][:] = 1
        self.has_extras = False


class StepInputs:
    """The inputs of `size` decoding rows, always at the same place, and two places where the host writes them down.

    So one step can run, while the next is written down behind it.
    """

    def __init__(self, size: int, table: Tensor, adapted: bool = False) -> None:
        """`adapted`: rows have adapters."""
        device, host = table.device, torch.device("cpu")
        self.staged = tuple(Columns(size, host, pinned=not is_host(device)) for _ in range(2))
        self.read = Columns(size, device)
        tensors = self.read.tensors
        of = self.read.of or self.staged[0].of  # on a GPU what is there is read in their place
        placed = None if self.read.of else (tensors["rows"], tensors["seq_lens"])
        num_new = np.ones(size, np.int32)
        of_states = None if placed is None else PlacedRows.decoding(*placed)
        state_rows = StateRows(of["rows"], num_new, of["seq_lens"], placed=of_states)
        self.forward = ForwardInputs(
            token_ids=tensors["ids"],
            positions=tensors["positions"],
            slots=tensors["slots"],
            last_tokens=torch.arange(size, device=device),
            table=table,
            rows=of["rows"],
            num_new=num_new,
            seq_lens=of["seq_lens"],
            num_decode=size,
            position_offsets=of["position_offsets"],
            rope_positions=torch.zeros(size, dtype=torch.int64, device=device),
            placed=placed,
            state_rows=state_rows,
            adapters=tensors["adapters"] if adapted else None,
        )
        self.rows = tensors["drawn_rows"]
        self.draw_params = DrawParams(*(tensors[name] for name in COLUMNS))
        self.drawn_positions = tensors["drawn_positions"]
