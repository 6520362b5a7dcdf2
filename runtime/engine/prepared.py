"""Decode steps that are prepared: captured once for some numbers of rows, replayed without Python in between.

Decides which numbers of rows are prepared, how a step is padded to one of them, and which steps are not replayed. How a
step is captured is the device's own. Knows no model. n rows of a prepared step, V vocabulary.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.draw_params import COLUMNS
from ramet.runtime.arrays import Ints
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.column_extras import fill_extras
from ramet.runtime.engine.devices.base import CapturedStep, Device, NotReplayable
from ramet.runtime.engine.devices.step_inputs import Columns, StepInputs
from ramet.runtime.engine.extras import RowAdapters
from ramet.runtime.sampling.epilogue import Epilogue, RowBuffer

if TYPE_CHECKING:
    from ramet.runtime.engine.devices.prompt_graphs import PromptGraphs

log = logging.getLogger("ramet")

Forward = Callable[[ForwardInputs], Tensor]  # of decoding rows: [n, V]


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


def fill(columns: Columns, batch: Batch) -> None:
    """WRITES columns on the host. Every row of the batch decodes. The padding row takes its best token."""
    of, num, sampling = columns.of, len(batch.rows), batch.sampling
    if num < len(of["ids"]) or columns.has_extras:
        columns.clear()
    for name, values in (
        ("ids", batch.token_ids), ("positions", batch.positions), ("slots", batch.slots), ("rows", batch.rows),
        ("drawn_rows", batch.rows), ("seq_lens", batch.seq_lens), ("drawn_positions", sampling.positions),
    ):  # fmt: skip
        of[name][:num] = values
    for name in COLUMNS:
        of[name][:num] = getattr(sampling.draw_params, name).view(of[name].dtype)
    if batch.inputs or sampling.penalties is not None:
        fill_extras(columns, batch)
        columns.has_extras = True
    of["relayed"][:] = 0
    of["relayed"][batch.relayed] = 1


@dataclass(slots=True)
class BegunStep:
    """A prepared step of `num` rows that runs, or comes behind one that does."""

    step: CapturedStep
    num: int
    place: int
    draws: bool
    _number: int
    took_s: float | None = None  # once it is joined, what Replay says
    _drawn: tuple[Ints, tuple[int, ...]] | None = None

    def join(self) -> None:
        replay = (self.step.whole if self.draws else self.step.forward)[self.place]
        replay.join(self._number)
        if self.took_s is None:
            self.took_s = replay.took_s()

    def logits(self) -> Tensor:
        """[num, V] float32, good until the next step is begun; a copy where that may be before their draw."""
        if not self.step.in_order:
            self.join()
        logits = self.step.logits if self.num == len(self.step.logits) else self.step.logits[: self.num]
        return logits.to(torch.float32, copy=self.step.in_order)

    def drawn(self) -> tuple[Ints, tuple[int, ...]]:
        """Tokens [num], and the indices of rows whose logits are not finite."""
        if self._drawn is None:
            self.join()
            tokens, finite = self.step.drawn[self.place]
            is_finite = finite.numpy()[: self.num]
            broken = () if is_finite.all() else tuple(np.flatnonzero(~is_finite).tolist())
            self._drawn = tokens.numpy()[: self.num].astype(np.int32), broken
        return self._drawn

    def phases(self, started: float) -> dict[str, float]:
        """Seconds of the step, a draw of its own among them: the device's, or the host's since it was `started`."""
        took_s = self.took_s
        return {"forward": time.perf_counter() - started if took_s is None else took_s, "sample": 0.0}

    def leave(self) -> None:
        """Keep what was drawn: another step may write to the same place."""
        if self.draws:
            self.drawn()
        else:
            self.join()


class StepGraphs:
    """Prepared steps of up to `max_rows` rows, each captured when it is first needed: the forward pass and the draw."""

    def __init__(
        self, device: Device, forward: Forward, epilogue: Epilogue, rows: RowBuffer, table: Tensor, max_rows: int
    ) -> None:
        """What steps draw goes to `rows`. `table`: the slot table."""
        self._device, self._forward, self._epilogue, self._rows = device, forward, epilogue, rows
        self._table = table
        self._sizes = np.array((few_sizes_up_to if device.captures_at_start else sizes_up_to)(max_rows))
        self.max_rows = max_rows  # the last of these sizes; 0: no step is prepared
        self._prepared: dict[int, tuple[StepInputs, CapturedStep]] = {}
        self._adapted: dict[int, tuple[StepInputs, CapturedStep]] = {}  # the same with adapters
        self._begun: list[BegunStep | None] = [None, None]  # at either place
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
        return fits and (self._device.captures_adapters or not batch.inputs or batch.input(RowAdapters) is None)

    def begin(self, batch: Batch, draws: bool) -> BegunStep | None:
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
        fill(inputs.staged[place], batch)
        number = (step.whole if draws else step.forward)[place].begin()
        begun = self._begun[place] = BegunStep(step, num, place, draws, number)
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
        """What a GPU computes of a step while it is captured is padding."""
        self.join()
        inputs = StepInputs(size, self._table, adapted)
        try:
            step = self._device.capture(inputs, lambda: self._forward(inputs.forward), self._epilogue, self._rows)
        except NotReplayable as why:
            log.warning("steps of %d rows are not prepared, which costs time: %s", size, why)
            self._sizes, self.max_rows = np.array(sorted(self._prepared), np.int64), max(self._prepared, default=0)
            return False
        (self._adapted if adapted else self._prepared)[size] = inputs, step
        return True


def prepare_all(device: Device, steps: StepGraphs, prompts: "PromptGraphs | None", max_tokens: int | None) -> None:
    """Now, the largest first. `max_tokens` as `PromptGraphs.prepare` has it."""
    started, free = time.perf_counter(), device.available_bytes()
    if prompts is not None:
        prompts.prepare(max_tokens)
    steps.prepare_all()
    taken = (free - device.available_bytes()) / (1 << 20)
    sizes = [] if prompts is None else prompts.sizes
    of_prompts = f"{len(sizes)} with prompts, up to {sizes[-1]} tokens" if sizes else "none with prompts"
    log.info(
        "prepared in %.1f s, with %.0f MiB: steps of %d numbers of rows, %s",
        time.perf_counter() - started, taken, steps.num_prepared, of_prompts,
    )  # fmt: skip
