"""From running requests to the immutable Step. Decides the order of rows; `sampling` says how they draw.

A Step holds ids, numbers and arrays of its own, never a live request: nothing that happens after it was planned changes
what it says. R rows, T new tokens over all rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.ipc.spec import HiddenMode
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import Batch, Embeds, HiddenRows, PromptLogprobs
from ramet.runtime.scheduler.rows import RowFlag
from ramet.runtime.scheduler.running import RunningRequest, RunningSet
from ramet.runtime.scheduler.sampling import sampling_columns


@dataclass(frozen=True, slots=True)
class Prefill:
    """One request's share of a step that is being planned: its next `num_new` known tokens."""

    running: RunningRequest
    num_new: int


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [start, stop) of the sequence in row `index` of the batch."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class HiddenSpan(Span):
    last: bool  # only the last one of the whole sequence is returned


@dataclass(frozen=True, slots=True)
class Step:
    """A planned step. Results are matched by (uid, epoch) of each row."""

    number: int  # 1, 2, ... in the order of planning, which is the order of launching
    uids: npt.NDArray[np.int64]  # [R]
    epochs: npt.NDArray[np.int64]  # [R]
    batch: Batch
    prefills: Ints  # indices into R of rows that compute tokens of a prompt
    prompt_logprobs: tuple[Span, ...]  # whose they are: one for each of batch.prompt_logprobs
    hidden: tuple[HiddenSpan, ...]  # one for each of batch.hidden

    @property
    def num_rows(self) -> int:
        return len(self.uids)

    @property
    def num_prefill_tokens(self) -> int:
        return int(self.batch.num_new[self.prefills].sum())


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
        slot_updates=running.take_slot_updates(),
        penalty_resets=running.take_penalty_resets(),
        prompt_logprobs=tuple(_prompt_logprobs(running, rows, firsts, starts, prompt_spans)),
        hidden=tuple(_hidden_rows(running, rows, firsts, starts, hidden_spans)),
        embeds=tuple(_embeds(prefills, firsts[len(decoding) :])),
        forgotten=running.take_forgotten(),
    )
    indices = np.arange(len(decoding), len(rows), dtype=np.int32)
    step = Step(number, table.uids[rows], table.epochs[rows], batch, indices, prompt_spans, hidden_spans)
    running.advance(number, rows, num_new, draws)
    return step


def _positions(starts: Ints, num_new: Ints, num_decode: int) -> Ints:
    """Position in its own sequence of every new token. [T]"""
    if num_decode == len(starts):
        return starts
    first = np.cumsum(num_new) - num_new
    own = np.arange(int(num_new.sum()), dtype=np.int32)
    return (np.repeat(starts - first, num_new) + own).astype(np.int32)


def _prompt_spans(prefills: Sequence[Prefill], first_index: int) -> Iterator[Span]:
    """Prompt tokens whose log-probability the step returns: what comes right before them is computed in it."""
    for index, prefill in enumerate(prefills, first_index):
        running, request = prefill.running, prefill.running.request
        if running.next_logprob is None:
            continue
        stop = min(running.scheduled + prefill.num_new + 1, request.prompt_len)
        if running.next_logprob < stop:
            yield Span(index, running.next_logprob, stop)
            running.next_logprob = stop if stop < request.prompt_len else None


def _prompt_logprobs(
    running: RunningSet, rows: Ints, firsts: Ints, starts: Ints, spans: Sequence[Span]
) -> Iterator[PromptLogprobs]:
    for span in spans:
        request = running.at(rows[span.index]).request
        asked, start = request.spec.logprobs, int(starts[span.index])
        assert asked is not None and span.start > start, (request.uid, span, start)
        first = int(firsts[span.index]) + span.start - 1 - start
        ids = np.array(asked.ids, dtype=np.int32)
        yield PromptLogprobs(first, request.tokens[span.start : span.stop].copy(), asked.num_top, ids)


def _hidden_spans(running: RunningSet, rows: Ints, num_new: Ints) -> Iterator[HiddenSpan]:
    """Tokens whose hidden state the step returns, or adds to the sum that it returns."""
    table = running.table
    for index in np.flatnonzero(table.flags[rows] & RowFlag.HIDDEN).tolist():
        each = running.at(rows[index])
        end = each.scheduled + int(num_new[index])
        match each.request.spec.hidden:
            case HiddenMode.ALL:
                start, stop, last = each.next_hidden, end, False
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
