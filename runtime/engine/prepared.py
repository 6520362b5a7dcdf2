"""Decode steps that are prepared: recorded once, replayed without Python in between.

Their tensors are buffers that stay where they are, which a replay reads. Decides which numbers of rows are prepared,
how a step is padded to one of them, and which steps are not replayed. What a device records is its own: a list of
native calls (step_tape.py) or CUDA graphs (graphs.py). Padding rows compute token 0 at position 0 into slot 0 of the
padding row. Knows no model. n rows of a prepared step, V vocabulary.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels.draw_params import COLUMNS, DrawParams
from ramet.kernels.reference_delta import PlacedRows, StateRows
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import PositionOffsets, RowAdapters
from ramet.runtime.sampling.columns import Penalties

log = logging.getLogger("ramet")

Forward = Callable[[ForwardInputs], Tensor]  # of decoding rows: [n, V]
Draw = Callable[[Tensor, "StepInputs"], tuple[Tensor, Tensor]]  # logits [n, V] -> tokens and finite [n], as a kernel's


class NotReplayable(Exception):
    """The forward pass does something that the device cannot record; the message names it."""


class Replayed(Protocol):
    """What was recorded, to be run again."""

    def begin(self) -> int:
        """Run it, behind what was begun before, while the host goes on; returns what to join it by."""

    def join(self, begun: int) -> None:
        """Wait for it and what was begun before it, on the thread that began them."""

    def took_s(self) -> float | None:
        """How long the device computed, when it was joined last; None: the device does not say."""


class RecordedStep(Protocol):
    """A step that was recorded once for each of the two places its inputs come from and its draws go to."""

    @property
    def in_order(self) -> bool:
        """What is computed of its logits comes behind it by itself, so the host need not wait for it."""

    @property
    def logits(self) -> Tensor:
        """[n, V], which each replay writes again."""

    @property
    def drawn(self) -> Sequence["Draws"]:
        """Of either place."""

    @property
    def forward(self) -> Sequence[Replayed]:
        """Of either place: takes the inputs, computes logits."""

    @property
    def whole(self) -> Sequence[Replayed]:
        """The same, and the draw."""


class Record(Protocol):
    """Runs a forward pass and a draw once while recording. Raises NotReplayable."""

    def __call__(
        self,
        inputs: "StepInputs",
        forward: Callable[[], Tensor],
        draw: Callable[[Tensor], tuple[Tensor, Tensor]],
    ) -> RecordedStep: ...


def sizes_up_to(max_rows: int) -> list[int]:
    """Numbers of rows to prepare: each of the few, then ever wider steps, so that padding stays below a fifth."""
    sizes, step = [], 1
    rows = 1
    while rows < max_rows:
        sizes.append(rows)
        if rows >= 16:
            step = max(4, 1 << (rows.bit_length() - 4))
        rows += step
    return [*sizes, max_rows]


def few_sizes_up_to(max_rows: int) -> list[int]:
    """Numbers of rows to prepare where a step of few rows takes the time of reading the weights, padded or not."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 128, 16), *range(128, 256, 32), *range(256, 512, 64)]
    sizes += range(512, max_rows, 128)
    return [*(size for size in sizes if size < max_rows), max_rows]


COLUMN_OF = {PositionOffsets: "shifts", RowAdapters: "adapters"}  # inputs that decoding rows may bring


class Columns:
    """What `size` decoding rows read, a number each, in one piece of memory."""

    KINDS: ClassVar = (
        *((n, torch.int64) for n in ("ids", "positions", "slots", "drawn_rows", "drawn_positions")),
        *((n, torch.int32) for n in ("rows", "seq_lens", "shifts", "relayed", "penalty_slots", "adapters")),
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
        self._penalised = False
        on_host = device.type == "cpu"
        self.of: dict[str, npt.NDArray[Any]] = {n: t.numpy() for n, t in self.tensors.items()} if on_host else {}
        self._bytes = self.memory.numpy() if on_host else None

    def fill(self, batch: Batch) -> None:
        """Every row of the batch decodes. The padding row takes its best token. Only on the host."""
        of, num, sampling = self.of, len(batch.rows), batch.sampling
        assert self._bytes is not None, "columns are filled on the host"
        if num < len(of["ids"]):
            self._bytes[:] = 0
            of["seq_lens"][:] = of["repetition"][:] = 1
        for name, values in (
            ("ids", batch.token_ids), ("positions", batch.positions), ("slots", batch.slots), ("rows", batch.rows),
            ("drawn_rows", batch.rows), ("seq_lens", batch.seq_lens), ("drawn_positions", sampling.positions),
        ):  # fmt: skip
            of[name][:num] = values
        for name in COLUMNS:
            of[name][:num] = getattr(sampling.draw_params, name).view(of[name].dtype)
        if self._penalised or sampling.penalties is not None:
            self._fill_penalties(sampling.penalties)
        of["shifts"][:num] = of["adapters"][:num] = 0
        for each in batch.inputs:
            assert isinstance(each, PositionOffsets | RowAdapters), "rows that decode bring nothing else"
            of[COLUMN_OF[type(each)]][:num] = each.values
        of["relayed"][:] = 0
        of["relayed"][batch.relayed] = 1

    def _fill_penalties(self, penalties: Penalties | None) -> None:
        """A row without them has slot 0."""
        of, self._penalised = self.of, penalties is not None
        of["penalty_slots"][:] = 0
        if penalties is not None:
            of["penalty_slots"][penalties.rows] = penalties.slots
            for name in ("frequency", "presence", "repetition"):
                of[name][penalties.rows] = getattr(penalties, name)


class StepInputs:
    """The inputs of `size` decoding rows, always at the same place, and two places where the host writes them down.

    So one step can run, while the next is written down behind it.
    """

    def __init__(self, size: int, table: Tensor, adapted: bool = False) -> None:
        """`adapted`: rows have adapters."""
        device, host = table.device, torch.device("cpu")
        self.staged = tuple(Columns(size, host, pinned=device.type == "cuda") for _ in range(2))
        self.read = Columns(size, device)
        tensors = self.read.tensors
        of = self.read.of or self.staged[0].of  # on a GPU what is there is read in their place
        placed = None if device.type == "cpu" else (tensors["rows"], tensors["seq_lens"])
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
            position_offsets=of["shifts"],
            rope_positions=torch.zeros(size, dtype=torch.int64, device=device),
            placed=placed,
            state_rows=state_rows,
            adapters=tensors["adapters"] if adapted else None,
        )
        self.rows = tensors["drawn_rows"]
        self.draw_params = DrawParams(*(tensors[name] for name in COLUMNS))
        self.drawn_positions = tensors["drawn_positions"]


class Draws(NamedTuple):
    tokens: Tensor  # [n] int64
    finite: Tensor  # [n] bool: whether a row's logits are

    def first(self, num: int) -> "Draws":
        return self if num == len(self.tokens) else Draws(self.tokens[:num], self.finite[:num])


def _first(column: Tensor, num: int) -> Tensor:
    return column if num == len(column) else column[:num]


@dataclass(slots=True)
class Begun:
    """A prepared step of `num` rows that runs, or comes behind one that does."""

    step: RecordedStep
    num: int
    place: int
    draws: bool
    _number: int
    took_s: float | None = None  # once it is joined, what Replayed says
    _drawn: tuple[Ints, npt.NDArray[np.bool_]] | None = None

    def join(self) -> None:
        replayed = (self.step.whole if self.draws else self.step.forward)[self.place]
        replayed.join(self._number)
        if self.took_s is None:
            self.took_s = replayed.took_s()

    def logits(self) -> Tensor:
        """[num, V] float32, good until the next step is begun; a copy where that may be before their draw."""
        if not self.step.in_order:
            self.join()
        return _first(self.step.logits, self.num).to(torch.float32, copy=self.step.in_order)

    def drawn(self) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Tokens [num], and which rows' logits are finite [num]."""
        if self._drawn is None:
            self.join()
            tokens, finite = self.step.drawn[self.place].first(self.num)
            self._drawn = tokens.numpy().astype(np.int32), finite.numpy().copy()
        return self._drawn

    def leave(self) -> None:
        """Keep what was drawn: another step may write to the same place."""
        if self.draws:
            self.drawn()
        else:
            self.join()


class StepGraphs:
    """Prepared steps of up to `max_rows` rows, each recorded when it is first needed: the forward pass and the draw."""

    def __init__(
        self, forward: Forward, draw: Draw, record: Record, table: Tensor, max_rows: int, few: bool = False,
        adapts: bool = True,
    ) -> None:  # fmt: skip
        """`few`: fewer sizes are prepared, as padding costs little. `adapts`: also steps of rows with adapters."""
        self._adapts = adapts
        self._forward, self._draw, self._record, self._table = forward, draw, record, table
        self._sizes = np.array((few_sizes_up_to if few else sizes_up_to)(max_rows))
        self._prepared: dict[int, tuple[StepInputs, RecordedStep]] = {}
        self._adapted: dict[int, tuple[StepInputs, RecordedStep]] = {}  # the same with adapters
        self._begun: list[Begun | None] = [None, None]  # at either place
        self._place = 0  # of the next step

    def prepare_all(self) -> None:
        """Now, the largest first: the smaller ones then use its memory again."""
        for size in reversed(self._sizes.tolist()):
            if size not in self._prepared and not self._prepare(size):
                return

    @property
    def num_prepared(self) -> int:
        return len(self._prepared)

    def covers(self, batch: Batch) -> bool:
        """Whether it is a step that can be prepared, and there are not too many rows."""
        fits = batch.only_decodes and 0 < len(batch.rows) <= self.max_rows
        return fits and (self._adapts or not batch.inputs or batch.input(RowAdapters) is None)

    @property
    def max_rows(self) -> int:
        """0: no step is prepared."""
        return int(self._sizes[-1]) if len(self._sizes) else 0

    def begin(self, batch: Batch, draws: bool) -> Begun | None:
        """None: this forward pass cannot be replayed. See `covers`. A step begun before it may still run.

        `draws`: tokens are drawn from the logits as they are, and what each row reads next is written.
        """
        num = len(batch.rows)
        size = int(self._sizes[np.searchsorted(self._sizes, num)])
        adapted = bool(batch.inputs) and batch.input(RowAdapters) is not None
        kept = self._adapted if adapted else self._prepared
        if size not in kept and not self._prepare(size, adapted):
            return None
        inputs, step = kept[size]
        place = self._place
        if (before := self._begun[place]) is not None:
            before.leave()
        inputs.staged[place].fill(batch)
        number = (step.whole if draws else step.forward)[place].begin()
        begun = self._begun[place] = Begun(step, num, place, draws, number)
        self._place = 1 - place
        return begun

    def join(self) -> None:
        """Wait for what was begun."""
        for begun in self._begun:
            if begun is not None:
                begun.join()

    def forget(self) -> None:
        """What was recorded, as it has the addresses of other weights. Nothing runs."""
        self._prepared, self._adapted, self._begun = {}, {}, [None, None]

    def _prepare(self, size: int, adapted: bool = False) -> bool:
        """What a GPU computes of a step while it is recorded is padding."""
        self.join()
        inputs = StepInputs(size, self._table, adapted)
        try:
            step = self._record(
                inputs, lambda: self._forward(inputs.forward), lambda logits: self._draw(logits, inputs)
            )
        except NotReplayable as why:
            log.warning("steps of %d rows are not prepared, which costs time: %s", size, why)
            self._sizes = np.array(sorted(self._prepared), np.int64)
            return False
        (self._adapted if adapted else self._prepared)[size] = inputs, step
        return True
