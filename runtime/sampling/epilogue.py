"""What happens to a step's logits before a token is drawn, in this order; on a GPU fused.py keeps the same one.

Penalties, bias, logit processors, mask, filters; then the draw and its log-probabilities.

Decides the order (a mask comes last, so that nothing makes a forbidden token legal again) and owns the state that drawn
tokens leave on the device: penalty counts, and what each row reads next. Knows no request.
Q drawing rows, V vocabulary.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels.draw_params import DrawParams, HostDrawParams
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.host_view import host_view, is_host
from ramet.runtime.sampling.columns import (
    Forget,
    HealedPlace,
    LogitEntries,
    PenaltyReset,
    PlaceLogprobs,
    SamplingColumns,
)
from ramet.runtime.sampling.filters import filtered_draw
from ramet.runtime.sampling.healing import HealingDraw
from ramet.runtime.sampling.logprobs import LogprobKernel, logprobs_of_drawn
from ramet.runtime.sampling.openings import Openings
from ramet.runtime.sampling.penalties import PenaltyKernel, PenaltyState
from ramet.runtime.sampling.processing import Failures, Memories, nothing_left, process
from ramet.runtime.sampling.processors import LogitProcessor


def on_device(column: npt.NDArray[Any], device: torch.device) -> Tensor:
    """The same numbers, where no step that runs is waited for: they are copied away before it returns."""
    values = torch.from_numpy(column)
    return values if is_host(device) else values.to(device, non_blocking=True)  # torch takes a while to do nothing


def params_on(params: HostDrawParams, device: torch.device) -> DrawParams[Tensor]:
    """The same columns on the device."""
    return params.map(lambda c: on_device(c.view(np.int64) if c.dtype.kind == "u" else c, device))


class SamplingKernel(PenaltyKernel, LogprobKernel, Protocol):
    """`ramet.kernels.reference` documents it."""

    def draw(self, logits: Tensor, params: DrawParams[Tensor], positions: Tensor) -> tuple[Tensor, Tensor]: ...

    def mask(self, logits: Tensor, rows: Tensor, allowed: Tensor) -> None: ...

    def advance(self, rows: Tensor, tokens: Tensor, next_ids: Tensor, lengths: Tensor) -> None: ...


class RowBuffer:
    """What each running row reads next, on the device: a step's draw writes it, the next step gathers from it.

    So a step can be launched before the host knows what the step before it drew. `lengths` is how many tokens a row's
    sequence has once its last draw is counted, `next_ids` what was drawn. M rows of the slot table; row 0 is padding.
    """

    def __init__(self, num_rows: int, device: torch.device) -> None:
        self.lengths = torch.zeros(num_rows, dtype=torch.int32, device=device)  # [M]
        self.next_ids = torch.zeros(num_rows, dtype=torch.int32, device=device)  # [M]
        self._host = host_view(self.lengths)

    def set_lengths(self, rows: Ints, lengths: Ints) -> None:
        """rows [n] have lengths [n], which the host knows."""
        if self._host is not None:
            self._host[rows] = lengths
            return
        self.lengths[on_device(rows.astype(np.int64), self.lengths.device)] = on_device(lengths, self.lengths.device)


class DeviceMasks(NamedTuple):
    """What grammars allow in a step, on the device."""

    rows: Tensor  # [K] int32 indices into Q
    allowed: Tensor  # [K, W] int32


class Drawn(NamedTuple):
    """What a step drew, still on the device: nothing has waited for it but log-probabilities and logit processors."""

    tokens: Tensor  # [Q] int64
    finite: Tensor  # [Q] bool; False: the row's token means nothing
    logits: Tensor  # [Q, V] float32
    failures: Failures  # rows that end with an error of their own
    logprobs: tuple[PlaceLogprobs, ...] = ()  # one for each of columns.logprobs
    healed: tuple[HealedPlace, ...] = ()  # one for each of columns.healed
    forbid: Callable[[], None] | None = None  # writes to `logits` what was forbidden, where they do not show it

    def outcome(self, finite: Tensor) -> tuple[tuple[int, ...], Failures]:
        """Rows whose logits are not finite, and rows that end with an error. `finite` is self.finite on the host."""
        if bool(finite.numpy().all()):  # a fifth of torch's time
            return (), self.failures
        broken = tuple(torch.nonzero(~finite).flatten().tolist())
        if self.forbid is not None:
            self.forbid()
        return broken, nothing_left(self.logits, broken) | self.failures


PlainDraw = Callable[[Tensor, SamplingColumns, Tensor], tuple[Tensor, Tensor]]  # as Epilogue._draw_plain


class Stages(Protocol):
    """What a device computes of one step, in the order that `Epilogue.run` keeps."""

    @property
    def in_place(self) -> bool:
        """The logits must be adjusted and masked where they are, as something besides the draw reads them."""

    def adjust(self, logits: Tensor) -> None:
        """Penalties, then biases. WRITES logits [Q, V]."""

    def draw(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [Q] and finite [Q]; counts and what each row reads next are WRITTEN."""


class PlainStages:
    """One kernel call for each stage."""

    in_place = True

    def __init__(self, columns: SamplingColumns, rows: Tensor, penalties: PenaltyState, draw: PlainDraw) -> None:
        self._columns, self._rows, self._penalties, self._draw = columns, rows, penalties, draw

    def adjust(self, logits: Tensor) -> None:
        columns = self._columns
        if columns.penalties is not None:
            self._penalties.apply(logits, columns.penalties)
        if columns.biased is not None:
            assert columns.biases is not None
            logits[entries_at(columns.biased, logits)] += on_device(columns.biases, logits.device)

    def draw(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        tokens, finite = self._draw(logits, self._columns, self._rows)
        if self._columns.penalties is not None:
            self._penalties.count(self._columns.penalties, tokens)
        return tokens, finite


class Epilogue:
    """`num_slots` requests may use penalties at once. `raw_logprobs`: those of the model's own logits are returned."""

    def __init__(
        self,
        num_slots: int,
        row_buffer: RowBuffer,
        vocab_size: int,
        device: torch.device,
        kernel: SamplingKernel,
        processors: Mapping[str, LogitProcessor] = MappingProxyType({}),
        raw_logprobs: bool = False,
    ) -> None:
        self._penalties = PenaltyState(num_slots, vocab_size, device, kernel)
        self._kernel, self._processors, self._raw = kernel, processors, raw_logprobs
        self._row_buffer = row_buffer
        self._memories: Memories = {}

    def reset_penalties(self, reset: PenaltyReset) -> None:
        """A penalised request that begins to run brings what it has drawn before."""
        self._penalties.reset(reset)

    def forget(self, ended: Forget) -> None:
        """Drop what logit processors remember of a request that has ended."""
        self._memories.pop(ended.uid, None)

    def run(self, logits: Tensor, columns: SamplingColumns, rows: Tensor, allowed: Ints | None = None) -> Drawn:
        """One token per row of the slot table, rows [Q] int64. logits [Q, V] float32 are WRITTEN.

        allowed [K, W] int32: what columns.masked may draw. WRITTEN where a row opens a thought.
        """
        if columns.penalties is None and columns.is_penalised_at_most:
            return Drawn(*self._draw_plain(logits, columns, rows), logits, {})
        shown = logits.clone() if columns.logprobs and self._raw else logits
        masks = masks_of(columns, allowed, logits.device)
        stages = self._stages(columns, rows, masks)
        if stages.in_place:
            stages.adjust(logits)
        failures = self._process(logits, columns)
        openings, healing = self._openings(logits, columns, masks), self._healing(logits, columns, masks)
        if stages.in_place:
            self._forbid(logits, columns, masks)
        if columns.filters:
            tokens, finite = filtered_draw(logits, columns, partial(stages.draw, logits))
        else:
            tokens, finite = stages.draw(logits)
        if openings is not None:
            openings.show(logits)
        if healing is not None:
            healing.show(logits)
        logprobs = self._logprobs(shown, tokens, columns)
        healed = healing.places(tokens) if healing is not None else ()
        forbid = None if stages.in_place else partial(self._forbid, logits, columns, masks)
        return Drawn(tokens, finite, logits, failures, logprobs, healed, forbid)

    def _draw_plain(self, logits: Tensor, columns: SamplingColumns, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [Q] and finite [Q] of rows that ask for nothing else; what each row reads next is WRITTEN."""
        tokens, finite = self._draw(logits, columns)
        self._kernel.advance(rows, tokens, self._row_buffer.next_ids, self._row_buffer.lengths)
        return tokens, finite

    def _stages(self, columns: SamplingColumns, rows: Tensor, masks: DeviceMasks | None) -> Stages:
        return PlainStages(columns, rows, self._penalties, self._draw_plain)

    def _openings(self, logits: Tensor, columns: SamplingColumns, masks: DeviceMasks | None) -> Openings | None:
        """Rows that open a thought now, which `masks` let through from then on."""
        if columns.openings is None or masks is None:
            return None
        openings = Openings(logits, columns, columns.openings, self._draw_freely)
        openings.let_through(masks.rows, masks.allowed)
        return openings

    def _draw_freely(self, logits: Tensor, columns: SamplingColumns) -> tuple[Tensor, Tensor]:
        """What rows draw without masks."""
        draw = partial(self._draw, logits, columns)
        return filtered_draw(logits, columns, draw) if columns.filters else draw()

    def _healing(self, logits: Tensor, columns: SamplingColumns, masks: DeviceMasks | None) -> HealingDraw | None:
        """Rows that choose the end of their prompt again."""
        if not columns.healed or masks is None:
            return None
        return HealingDraw(logits, columns, masks.rows, masks.allowed, self._kernel.mask)

    def _forbid(self, logits: Tensor, columns: SamplingColumns, masks: DeviceMasks | None) -> None:
        """The masks: nothing comes after them that could make a forbidden token legal."""
        if columns.banned is not None:
            logits[entries_at(columns.banned, logits)] = -torch.inf
        if masks is not None:
            self._kernel.mask(logits, masks.rows, masks.allowed)

    def _process(self, logits: Tensor, columns: SamplingColumns) -> Failures:
        return process(logits, columns.processors, self._processors, self._memories) if columns.processors else {}

    def _logprobs(self, logits: Tensor, tokens: Tensor, columns: SamplingColumns) -> tuple[PlaceLogprobs, ...]:
        if not columns.logprobs:
            return ()
        return logprobs_of_drawn(self._kernel, logits, tokens, columns, self._raw)

    def _draw(self, logits: Tensor, columns: SamplingColumns) -> tuple[Tensor, Tensor]:
        """Tokens [Q] of masked logits, and whether the row's logits are finite [Q]."""
        params, positions = params_on(columns.draw_params, logits.device), on_device(columns.positions, logits.device)
        return self._kernel.draw(logits, params, positions)


def masks_of(columns: SamplingColumns, allowed: Ints | None, device: torch.device) -> DeviceMasks | None:
    """On the device; None: a grammar masks no row."""
    if columns.masked is None:
        return None
    assert allowed is not None and len(allowed) == len(columns.masked), "rows that a grammar masks have no masks"
    return DeviceMasks(on_device(columns.masked, device), on_device(allowed, device))


def entries_at(spots: LogitEntries, logits: Tensor) -> tuple[Tensor, Tensor]:
    """An index of single logits."""
    rows, ids = (on_device(column, logits.device).long() for column in (spots.rows, spots.ids))
    return rows, ids
