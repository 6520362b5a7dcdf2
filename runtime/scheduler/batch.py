"""From running requests to the immutable Step. Decides the order of rows and how each samples.

A Step holds ids, numbers and arrays of its own, never a live request: nothing that happens after it was planned changes
what it says. A sampling column that no row needs is absent, so that a request without penalties, biases and bans costs
nothing for them. R rows, T new tokens over all rows, Q rows that draw.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import HiddenMode
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.engine.batch import NO_ROWS, Batch, StepResult
from ramet.runtime.engine.extras import (
    Embeds,
    FeatureRows,
    HiddenRows,
    MropePositions,
    PositionOffsets,
    PromptLogprobs,
    RowAdapters,
    RowInput,
)
from ramet.runtime.sampling.columns import (
    FilterRows,
    HealedRow,
    LogitEntries,
    LogprobRow,
    Penalties,
    ProcessorRow,
    ProcessorRows,
    SamplingColumns,
)
from ramet.runtime.scheduler.features.media import RequestMedia
from ramet.runtime.scheduler.features.pace import StepTime
from ramet.runtime.scheduler.features.returned import ReturnBudget
from ramet.runtime.scheduler.features.states import PlannedSnapshot
from ramet.runtime.scheduler.rows import RowFlag, RowTable, RunningRequest
from ramet.runtime.scheduler.running import RunningSet

ONE = np.int32(1)
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Prefill:
    """One request's share of a step that is being planned: its next `num_new` known tokens."""

    running: RunningRequest
    num_new: int

    @property
    def end(self) -> int:
        return self.running.scheduled + self.num_new


class PrefillBudget:
    """What one step may still compute of prompts. The first that takes of it gets one token at least.

    `time`: the step's, which prompts may not make too long; None: it has no bound.
    """

    def __init__(self, tokens: int, hidden_size: int, time: StepTime | None = None) -> None:
        self.tokens, self._hidden_size, self._time = tokens, hidden_size, time
        self._returned: ReturnBudget | None = None  # made where something is returned of a prompt
        self._least = 1

    def take(self, running: RunningRequest) -> Iterator[Prefill]:
        """The next tokens of a prompt, as many as fit."""
        start, wanted = running.scheduled, running.target - running.scheduled
        tokens = self.tokens
        if self._time is not None and wanted > 0 and tokens > 0:
            tokens = self._time.most(start, tokens if running.returns_prompt else min(wanted, tokens))
        num = cost = min(wanted, tokens)
        if running.returns_prompt and num > 0:
            self._returned = self._returned or ReturnBudget(self._hidden_size)
            num = max(self._returned.limit(running, num, tokens), self._least)
            cost = self._returned.take(running, num)
        if running.request.media is not None and num > 0:
            num, cost = self._uncut(running.request.media, start, num, cost)
        if self._time is not None:
            self._time.add(start, cost)
            if num < wanted:
                self.tokens = 0  # the step is as long as it may be
        if num > 0:
            self._least = 0
            self.tokens -= cost
            yield Prefill(running, num)

    def _uncut(self, media: RequestMedia, start: int, num: int, cost: int) -> tuple[int, int]:
        """(tokens, cost) where no piece is cut whose tokens see each other: the first of a step has one at least."""
        if not media.is_whole:
            return num, cost
        earlier, later = media.whole(start, start + num)
        taken = earlier - start if earlier > start or not self._least else later - start
        return taken, cost + taken - num


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [start, stop) of the sequence in row `index` of the batch."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class PromptSpan(Span):
    """Tokens whose log-probabilities are returned."""


@dataclass(frozen=True, slots=True)
class HiddenSpan(Span):
    """Tokens whose hidden states are returned."""

    last: bool  # only the last one of the whole sequence is returned


@dataclass(frozen=True, slots=True)
class Step:
    """A planned step. Results are matched by (uid, epoch) of each row."""

    number: int  # 1, 2, ... in the order of planning, which is the order of launching
    uids: npt.NDArray[np.int64]  # [R]
    epochs: npt.NDArray[np.int64]  # [R]
    batch: Batch
    prefills: Ints  # indices into R of rows that compute tokens they were admitted with
    owners: tuple[Span, ...]  # whose the answers are: one for each of batch.asks
    snapshots: tuple[PlannedSnapshot, ...] = ()  # of states, which this step or the copies after it take

    @property
    def num_rows(self) -> int:
        return len(self.uids)

    @property
    def num_prefill_tokens(self) -> int:
        return int(self.batch.num_new[self.prefills].sum())

    def answered(self, kind: type[S], result: StepResult) -> Iterator[tuple[S, Any]]:
        """The answers whose owner is of this type."""
        for owner, answer in zip(self.owners, result.answers, strict=True):
            if isinstance(owner, kind):
                yield owner, answer


def plan_step(
    number: int, running: RunningSet, decoding: Ints, prefills: Sequence[Prefill], eos_ids: frozenset[int]
) -> Step:
    """One token for each of the rows `decoding`, then the prefills; what is planned counts as scheduled from here on.

    Rows with one new token come first, the longer ones after them, each group in the order given.
    """
    table = running.table
    prefills = [p for p in prefills if p.num_new == 1] + [p for p in prefills if p.num_new > 1]
    rows = np.concatenate([decoding, np.array([p.running.row for p in prefills], dtype=np.int32)])
    num_new = np.ones(len(rows), dtype=np.int32)
    num_new[len(decoding) :] = [p.num_new for p in prefills]
    starts = table.scheduled[rows]
    ends = starts + num_new
    draws = np.flatnonzero((ends == table.planned_totals[rows]) & (ends < table.limits[rows])).astype(np.int32)
    relayed = np.flatnonzero(starts[: len(decoding)] >= table.totals[decoding]).astype(np.int32)
    num_decode = int((num_new == 1).sum())
    positions = _positions(starts, num_new, num_decode)
    owners = rows if num_decode == len(rows) else np.repeat(rows, num_new)
    token_ids = table.tokens[owners, positions]
    token_ids[relayed] = 0
    prompt_spans = tuple(_prompt_spans(prefills, len(decoding)))
    hidden_spans = tuple(_hidden_spans(running, rows, num_new))
    firsts = np.cumsum(num_new) - num_new  # index of each row's first token among the T
    features = tuple(_features(prefills, firsts[len(decoding) :]))
    if features:
        token_ids = next(p.running.request.media for p in prefills if p.running.request.media).numbers.ids(token_ids)
    before = running.take_commands()
    states, saves, snapshots = running.states, None, tuple[PlannedSnapshot, ...]()
    if states is not None:
        saves, snapshots = states.plan(rows, len(decoding), ends)
    inputs = (
        *_embeds(prefills, firsts[len(decoding) :]),
        *features,
        *(() if saves is None else (saves,)),
        *_row_inputs(_nonzero(table.shifts, rows), _nonzero(table.adapters, rows)),
        *_turns(prefills, firsts[len(decoding) :], positions, np.repeat(table.shifts[rows], num_new)),
    )
    batch = Batch(
        rows=rows,
        num_new=num_new,
        seq_lens=ends,
        token_ids=token_ids,
        positions=positions,
        slots=table.slots[owners, positions],
        num_decode=num_decode,
        draws=draws,
        sampling=sampling_columns(running, rows[draws], eos_ids),
        relayed=relayed,
        before=before,
        inputs=inputs,
        asks=(
            *_prompt_logprobs(running, rows, firsts, starts, prompt_spans),
            *_hidden_rows(running, rows, firsts, starts, hidden_spans),
        ),
        only_decodes=len(draws) == num_decode == len(rows) and not (prefills or hidden_spans),
    )
    prompts = [i for i, p in enumerate(prefills, len(decoding)) if p.running.scheduled < len(p.running.request.tokens)]
    indices = np.array(prompts, dtype=np.int32)  # beside them are outputs with tokens that nobody drew
    step = Step(number, table.uids[rows], table.epochs[rows], batch, indices, (*prompt_spans, *hidden_spans), snapshots)
    running.advance(number, rows, num_new, rows[draws])
    return step


class DecodePlanner:
    """Plans steps that only decode, as `plan_step` does, and keeps from step to step what the same rows share."""

    def __init__(self, running: RunningSet, eos_ids: frozenset[int]) -> None:
        self._running, self._eos_ids = running, eos_ids
        self._kept = _Kept.of(running, NO_ROWS, eos_ids)

    def plan(self, number: int, decoding: Ints) -> Step:
        """`decoding` is the set's own array: the same one as long as the same rows decode."""
        running, table = self._running, self._running.table
        if decoding is not self._kept.rows:
            self._kept = _Kept.of(running, decoding, self._eos_ids)
        kept, starts = self._kept, table.scheduled[decoding]
        ends = starts + ONE
        token_ids = table.tokens[decoding, starts]
        relayed = np.flatnonzero(starts >= table.totals[decoding]).astype(np.int32)
        if len(relayed):
            token_ids[relayed] = 0
        sampling = kept.sampling(running, ends, self._eos_ids)
        hidden_spans = tuple(_hidden_spans(running, decoding, kept.ones)) if kept.flags & RowFlag.HIDDEN else ()
        states, snapshots = running.states, tuple[PlannedSnapshot, ...]()
        before = running.take_commands()
        if states is not None:
            _, snapshots = states.plan(decoding, len(decoding), ends)
        batch = Batch(
            rows=decoding,
            num_new=kept.ones,
            seq_lens=ends,
            token_ids=token_ids,
            positions=starts,
            slots=table.slots[decoding, starts],
            num_decode=len(decoding),
            draws=kept.indices,
            sampling=sampling,
            relayed=relayed,
            before=before,
            inputs=kept.inputs,
            asks=tuple(_hidden_rows(running, decoding, kept.indices, starts, hidden_spans)) if hidden_spans else (),
            only_decodes=not hidden_spans,
        )
        running.advance(number, decoding, kept.ones, decoding)
        return Step(number, kept.uids, kept.epochs, batch, NO_ROWS, hidden_spans, snapshots)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the steps of the same R decoding rows have in common. Arrays that steps share are never written."""

    rows: Ints  # [R]
    ones: Ints  # [R]
    indices: Ints  # [R]
    uids: npt.NDArray[np.int64]  # [R]
    epochs: npt.NDArray[np.int64]  # [R]
    prompt_lens: npt.NDArray[np.int64]  # [R]
    flags: int  # those of any row
    most_min_new: int
    inputs: tuple[RowInput, ...]
    columns: SamplingColumns  # as of the first of the steps

    @classmethod
    def of(cls, running: RunningSet, rows: Ints, eos_ids: frozenset[int]) -> "_Kept":
        table, num = running.table, len(rows)
        return cls(
            rows,
            np.ones(num, np.int32),
            np.arange(num, dtype=np.int32),
            table.uids[rows],
            table.epochs[rows],
            table.prompt_lens[rows].astype(np.int64),
            int(np.bitwise_or.reduce(table.flags[rows])) if num else 0,
            int(table.min_new[rows].max(initial=0)),
            _row_inputs(_nonzero(table.shifts, rows), _nonzero(table.adapters, rows)),
            sampling_columns(running, rows, eos_ids),
        )

    def sampling(self, running: RunningSet, ends: Ints, eos_ids: frozenset[int]) -> SamplingColumns:
        """Of a step after which the rows have `ends` [R] tokens."""
        if self.flags & RowFlag.PROCESSOR or self.most_min_new or self.columns.openings is not None:
            return sampling_columns(running, self.rows, eos_ids)
        return replace(self.columns, positions=ends - self.prompt_lens)


def _nonzero(column: Ints, rows: Ints) -> Ints | None:
    """[R] of a column of the table; None: it is 0 for all of them."""
    values: Ints = column[rows]
    return values if values.any() else None


def _row_inputs(shifts: Ints | None, adapters: Ints | None) -> tuple[RowInput, ...]:
    offsets = () if shifts is None else (PositionOffsets(shifts),)
    return offsets if adapters is None else (*offsets, RowAdapters(adapters))


def _positions(starts: Ints, num_new: Ints, num_decode: int) -> Ints:
    """Index in its own sequence of every new token. [T]"""
    if num_decode == len(starts):
        return starts
    first = np.cumsum(num_new) - num_new
    own = np.arange(int(num_new.sum()), dtype=np.int32)
    return (np.repeat(starts - first, num_new) + own).astype(np.int32)


def _prompt_spans(prefills: Sequence[Prefill], first_index: int) -> Iterator[PromptSpan]:
    """Prompt tokens whose log-probability the step returns: what comes right before them is computed in it."""
    for index, prefill in enumerate(prefills, first_index):
        running, request = prefill.running, prefill.running.request
        if running.next_logprob is None:
            continue
        stop = min(running.scheduled + prefill.num_new + 1, request.prompt_len)
        if running.next_logprob < stop:
            yield PromptSpan(index, running.next_logprob, stop)
            running.next_logprob = stop if stop < request.prompt_len else None


def _prompt_logprobs(
    running: RunningSet, rows: Ints, firsts: Ints, starts: Ints, spans: Sequence[PromptSpan]
) -> Iterator[PromptLogprobs]:
    for span in spans:
        request = running.at(rows[span.index]).request
        asked, start = request.spec.logprobs, int(starts[span.index])
        assert asked is not None and span.start > start, (request.uid, span, start)
        first = int(firsts[span.index]) + span.start - 1 - start
        ids = np.array(asked.ids, dtype=np.int32)
        yield PromptLogprobs(first, request.ids(span.start, span.stop).copy(), asked.num_top, ids)


def _hidden_spans(running: RunningSet, rows: Ints, num_new: Ints) -> Iterator[HiddenSpan]:
    """Tokens whose hidden state the step returns, or adds to the sum that it returns."""
    table = running.table
    for index in np.flatnonzero(table.flags[rows] & RowFlag.HIDDEN).tolist():
        each = running.at(rows[index])
        end = each.scheduled + int(num_new[index])
        match each.request.spec.hidden:
            case HiddenMode.ALL:
                start, stop, last = each.next_hidden, end, False
            case HiddenMode.FIRST:
                start, stop, last = each.next_hidden, min(end, 1), False
            case HiddenMode.MEAN:
                start, stop, last = each.next_hidden, min(end, each.request.prompt_len), False
            case _:
                start, stop, last = end - 1, end if end == table.planned_totals[each.row] else end - 1, True
        if start < stop:
            each.next_hidden = stop
            yield HiddenSpan(index, start, stop, last)


def _hidden_rows(
    running: RunningSet, rows: Ints, firsts: Ints, starts: Ints, spans: Sequence[HiddenSpan]
) -> Iterator[HiddenRows]:
    for span in spans:
        start = int(starts[span.index])
        assert span.start >= start, (span, start)
        summed = running.at(rows[span.index]).request.spec.hidden is HiddenMode.MEAN
        yield HiddenRows(int(firsts[span.index]) + span.start - start, span.stop - span.start, summed)


def _embeds(prefills: Sequence[Prefill], firsts: Ints) -> Iterator[Embeds]:
    """The parts of prompts that came as embeddings."""
    for first, prefill in zip(firsts.tolist(), prefills, strict=True):
        embeds, start = prefill.running.request.embeds, prefill.running.scheduled
        if embeds is not None and start < len(embeds):
            yield Embeds(first, embeds[start : start + prefill.num_new])


def _features(prefills: Sequence[Prefill], firsts: Ints) -> Iterator[FeatureRows]:
    """Those of the prompts' media."""
    for first, prefill in zip(firsts.tolist(), prefills, strict=True):
        media = prefill.running.request.media
        if media is not None:
            yield from media.rows(prefill.running.scheduled, prefill.end, first)


def _turns(prefills: Sequence[Prefill], firsts: Ints, positions: Ints, shifts: Ints) -> Iterator[MropePositions]:
    """positions and shifts [T]. Nothing where every token is at its position less its shift."""
    places = None
    for first, prefill in zip(firsts.tolist(), prefills, strict=True):
        request, start = prefill.running.request, prefill.running.scheduled
        if request.turns is not None and start < request.turns.end:
            places = np.tile(positions - shifts, (3, 1)) if places is None else places
            own = request.turns.places[:, start : prefill.end]
            places[:, first : first + own.shape[1]] = own
    if places is not None:
        yield MropePositions(places)


# -- how the rows sample ---------------------------------------------------------------------------------------------

Indices = npt.NDArray[np.signedinteger[Any]]


def sampling_columns(running: RunningSet, rows: Ints, eos_ids: frozenset[int]) -> SamplingColumns:
    """One entry for each of `rows` [Q], which draw in this step. Every array is a copy."""
    table = running.table
    flags, num_output = table.flags[rows], table.planned_totals[rows] - table.prompt_lens[rows]
    constrained = (flags & RowFlag.CONSTRAINED) != 0  # their grammars know what may end them
    healing, masked = (flags & RowFlag.HEALING) != 0, (flags & RowFlag.MASKED) != 0
    healed = tuple(_healed(running, rows, np.flatnonzero(healing)))
    early, begins = num_output < table.min_new[rows], num_output == table.num_healed[rows]
    biased, biases = _biases(running, rows, np.flatnonzero(flags & RowFlag.BIAS))
    return SamplingColumns(
        draw_params=table.draw_params.map(lambda column: column[rows]),
        positions=num_output.astype(np.int64),
        penalties=_penalties(table, rows),
        biased=biased,
        biases=biases,
        filters=_filters(running, rows, np.flatnonzero(flags & RowFlag.FILTERED)),
        processors=_processors([(int(i), running.at(rows[i])) for i in np.flatnonzero(flags & RowFlag.PROCESSOR)]),
        banned=_banned(running, rows, np.flatnonzero(early & (~constrained | healing)), eos_ids),
        masked=np.flatnonzero(masked).astype(np.int32) if masked.any() else None,
        openings=_openings(running, rows, np.flatnonzero(constrained & ~healing & begins)),
        healed=healed,
        logprobs=tuple(_logprobs(running, rows, np.flatnonzero(flags & RowFlag.LOGPROBS), healed)),
    )


def _penalties(table: RowTable, rows: Ints) -> Penalties | None:
    slots = table.penalty_slots[rows]
    at = np.flatnonzero(slots).astype(np.int32)
    if not len(at):
        return None
    own = rows[at]
    return Penalties(at, slots[at], table.frequency[own], table.presence[own], table.repetition[own])


def _biases(running: RunningSet, rows: Ints, at: Indices) -> tuple[LogitEntries | None, Floats | None]:
    """Where something is added to a logit, and how much."""
    if not len(at):
        return None, None
    given = [biases for i in at if (biases := running.at(rows[i]).request.biases) is not None]
    ids, values = (np.concatenate(column) for column in zip(*given, strict=True))
    return _entries(at, [len(ids) for ids, _ in given], ids), values


def _filters(running: RunningSet, rows: Ints, at: Indices) -> tuple[FilterRows, ...]:
    """What leaves tokens out of some rows."""
    asked: dict[str, dict[int, float]] = {}
    for i in at.tolist():
        for name, value in running.at(rows[i]).request.params.filters.items():
            asked.setdefault(name, {})[i] = value
    return tuple(
        FilterRows(name, np.array(list(of), np.int32), np.array(list(of.values()), np.float32))
        for name, of in asked.items()
    )


def _banned(running: RunningSet, rows: Ints, at: Indices, eos_ids: frozenset[int]) -> LogitEntries | None:
    """What would end a request that has fewer than its min_new_tokens."""
    stops = [_banned_ids(running.at(rows[i]), eos_ids) for i in at]
    if not any(stops):
        return None
    return _entries(at, [len(ids) for ids in stops], np.array([t for ids in stops for t in ids], dtype=np.int32))


def _healed(running: RunningSet, rows: Ints, at: Indices) -> Iterator[HealedRow]:
    for i in at.tolist():
        each = running.at(rows[i])
        assert each.request.healing is not None, each.uid
        yield HealedRow(i, each.request.healing.inner_ids(each.output))


def _logprobs(running: RunningSet, rows: Ints, at: Indices, healed: Sequence[HealedRow]) -> Iterator[LogprobRow]:
    """Those that clients ask for; where a prompt is healed, of the tokens that may turn out to be the output's too."""
    inner = {each.row: each.inner for each in healed}
    for i in at.tolist():
        asked = logprob_row(i, running.at(rows[i]))
        yield replace(asked, ids=np.concatenate([asked.ids, inner[i]])) if i in inner else asked


def _openings(running: RunningSet, rows: Ints, at: Indices) -> LogitEntries | None:
    """Where an output that is under a constraint may begin with a thought instead."""
    asked = ((i, running.at(rows[i]).request.constrained) for i in at.tolist())
    found = [(i, each.output.opening) for i, each in asked if each is not None and each.output.opening is not None]
    return LogitEntries(*(np.array(column, dtype=np.int32) for column in zip(*found, strict=True))) if found else None


def logprob_row(at: int, running: RunningRequest) -> LogprobRow:
    asked = running.request.spec.logprobs
    assert asked is not None, running.uid
    return LogprobRow(at, asked.num_top, np.array(asked.ids, dtype=np.int32))


def _processors(rows: list[tuple[int, RunningRequest]]) -> tuple[ProcessorRows, ...]:
    """One group for each logit processor that a row asks for."""
    groups: dict[str, list[ProcessorRow]] = {}
    for at, running in rows:
        request = running.request
        assert request.spec.processor is not None, running.uid
        asked = ProcessorRow(at, running.uid, request.params.custom_params or {}, request.prompt, running.output.copy())
        groups.setdefault(request.spec.processor, []).append(asked)
    return tuple(ProcessorRows(name, tuple(group)) for name, group in groups.items())


def _entries(rows: Indices, lengths: list[int], ids: Ints) -> LogitEntries:
    """rows[i] owns the next lengths[i] of the ids."""
    return LogitEntries(np.repeat(rows.astype(np.int32), lengths), ids)


def _banned_ids(running: RunningRequest, eos_ids: frozenset[int]) -> list[int]:
    """What would end it: not what only spells the end of its prompt."""
    stops, healing = _stop_ids(running.request.params, eos_ids), running.request.healing
    if healing is None:
        return stops
    return sorted(set(stops).difference(healing.spelling_ids))


def _stop_ids(params: SamplingParams, eos_ids: frozenset[int]) -> list[int]:
    return sorted({*params.stop_token_ids, *(() if params.ignore_eos else eos_ids)})
