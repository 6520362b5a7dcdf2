"""From seats to the immutable Batch of one step. Decides the order of rows; `sampling` says how they draw.

Knows seats and their requests, not the tree and not the device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ramet.ipc.spec import HiddenMode
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import Batch, Embeds, HiddenRows, PenaltyReset, PromptLogprobs, SlotUpdate
from ramet.runtime.scheduler.running import Seat
from ramet.runtime.scheduler.sampling import sampling_columns


@dataclass(frozen=True, slots=True)
class Work:
    """One seat's share of a step: its next `num_new` known tokens."""

    seat: Seat
    num_new: int

    @property
    def draws(self) -> bool:
        """After this step every known token is computed and another one may follow."""
        return self.num_new == self.seat.uncomputed and self.seat.request.remaining > 0

    @property
    def scored(self) -> range:
        """Prompt tokens whose log-probability this step tells: what comes right before them is computed in it."""
        request = self.seat.request
        if request.next_scored is None:
            return range(0)
        return range(request.next_scored, min(self.seat.computed + self.num_new + 1, request.prompt_len))

    @property
    def shown(self) -> range:
        """Tokens whose hidden state this step tells, or adds to the sum that it tells."""
        request, end = self.seat.request, self.seat.computed + self.num_new
        match request.spec.hidden:
            case HiddenMode.ALL:
                return range(request.next_hidden, end)
            case HiddenMode.MEAN:
                return range(request.next_hidden, min(end, request.prompt_len))
            case HiddenMode.LAST if end == request.total:
                return range(end - 1, end)
            case _:
                return range(0)


@dataclass(frozen=True, slots=True)
class Step:
    """A planned step: works[i] is row i of the batch."""

    works: tuple[Work, ...]
    batch: Batch
    num_prefill_rows: int
    num_prefill_tokens: int


def build_step(
    works: Sequence[Work],
    slot_updates: Sequence[SlotUpdate],
    penalty_resets: Sequence[PenaltyReset],
    eos_ids: frozenset[int],
) -> Step:
    """Rows with one new token first, the longer ones after them, each group in the order given."""
    ordered = [w for w in works if w.num_new == 1] + [w for w in works if w.num_new > 1]
    num_decode = sum(w.num_new == 1 for w in works)
    draws = [i for i, work in enumerate(ordered) if work.draws]
    num_new = np.array([w.num_new for w in ordered], dtype=np.int32)
    starts = np.array([w.seat.computed for w in ordered], dtype=np.int32)
    batch = Batch(
        rows=np.array([w.seat.row for w in ordered], dtype=np.int32),
        num_new=num_new,
        seq_lens=starts + num_new,
        token_ids=_flatten([w.seat.request.tokens for w in ordered], ordered),
        positions=_positions(starts, num_new, num_decode),
        slots=_flatten([w.seat.slots for w in ordered], ordered),
        num_decode=num_decode,
        draws=np.array(draws, dtype=np.int32),
        sampling=sampling_columns([ordered[i].seat for i in draws], eos_ids),
        slot_updates=tuple(slot_updates),
        penalty_resets=tuple(penalty_resets),
        prompt_logprobs=tuple(_scorings(ordered, num_new)),
        hidden=tuple(_hidden(ordered, num_new)),
        embeds=tuple(_embeds(ordered, num_new)),
    )
    prefill = [w.num_new for w in ordered if not w.seat.decoding]
    return Step(tuple(ordered), batch, len(prefill), sum(prefill))


def _scorings(works: list[Work], num_new: Ints) -> Iterator[PromptLogprobs]:
    """What the step must tell of prompt tokens, in the order of its rows."""
    starts = np.cumsum(num_new) - num_new  # index of each row's first token among the T
    for start, work in zip(starts, works, strict=True):
        request, scored = work.seat.request, work.scored
        if scored:
            assert request.spec.logprobs is not None and scored.start > work.seat.computed, (scored, work.seat.computed)
            first = int(start) + scored.start - 1 - work.seat.computed
            targets = request.tokens[scored.start : scored.stop].copy()
            ids = np.array(request.spec.logprobs.ids, dtype=np.int32)
            yield PromptLogprobs(first, targets, request.spec.logprobs.num_top, ids)


def _hidden(works: list[Work], num_new: Ints) -> Iterator[HiddenRows]:
    """Whose hidden states the step must tell, in the order of its rows."""
    starts = np.cumsum(num_new) - num_new
    for start, work in zip(starts, works, strict=True):
        if shown := work.shown:
            assert shown.start >= work.seat.computed, (shown, work.seat.computed)
            first = int(start) + shown.start - work.seat.computed
            yield HiddenRows(first, len(shown), summed=work.seat.request.spec.hidden is HiddenMode.MEAN)


def _embeds(works: list[Work], num_new: Ints) -> Iterator[Embeds]:
    """The parts of prompts that came as embeddings."""
    starts = np.cumsum(num_new) - num_new
    for start, work in zip(starts, works, strict=True):
        embeds, computed = work.seat.request.embeds, work.seat.computed
        if embeds is not None and computed < len(embeds):
            yield Embeds(int(start), embeds[computed : computed + work.num_new])


def _flatten(sources: list[Ints], works: list[Work]) -> Ints:
    """The new part of every row's array, one after the other. [T]"""
    pieces = [source[w.seat.computed : w.seat.computed + w.num_new] for source, w in zip(sources, works, strict=True)]
    return np.concatenate(pieces)


def _positions(starts: Ints, num_new: Ints, num_decode: int) -> Ints:
    """Position in its own sequence of every new token. [T]"""
    if num_decode == len(starts):
        return starts
    first = np.cumsum(num_new) - num_new  # index of each row's first token among the T
    own = np.arange(int(num_new.sum()), dtype=np.int32)
    return (np.repeat(starts - first, num_new) + own).astype(np.int32)
