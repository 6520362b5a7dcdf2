"""No sequence reads keys that were made for a shorter one, or for a longer one. Here keys are others beyond 24 tokens.

The runner remembers of each slot which keys are in it, by the shift of the row that wrote them.
"""

import random
from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from delayed_runner import DelayedRunner
from hash_runner import HashRunner, expected_output
from schedules import TOKENIZER, make_schedule, play, run, what_clients_see

from ramet.ipc.messages import FinishKind
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import PositionOffsets, SlotCopy

BOUNDARY = 24


class _Bounded:
    """Mixed into a runner."""

    longrope_limit = BOUNDARY
    long_slots: np.ndarray

    def compute(self, batch: Batch) -> None:
        super().compute(batch)  # type: ignore[misc]
        if not hasattr(self, "long_slots"):
            self.long_slots = np.zeros(len(self.pool), dtype=bool)  # type: ignore[attr-defined]
        offsets = batch.input(PositionOffsets)
        shifts = np.zeros(len(batch.rows), np.int32) if offsets is None else offsets.values
        assert set(shifts.tolist()) <= {0, -BOUNDARY}
        self.long_slots[batch.slots] = np.repeat(shifts < 0, batch.num_new)
        for copy in (each for each in batch.before if isinstance(each, SlotCopy)):
            self.long_slots[copy.target] = self.long_slots[copy.source]
        for row, seq_len, shift in zip(batch.rows, batch.seq_lens, shifts, strict=True):
            assert seq_len <= BOUNDARY or shift < 0, "a long sequence is computed with the keys of a short one"
            slots = self.table[row, :seq_len]  # type: ignore[attr-defined]
            assert (self.long_slots[slots] == (shift < 0)).all(), f"row {row} reads keys of both kinds"


class BoundedRunner(_Bounded, HashRunner):
    pass


class LateBoundedRunner(_Bounded, DelayedRunner):
    pass


def top_of(**options: Any) -> BenchTop:
    return BenchTop(runners=(BoundedRunner, LateBoundedRunner), **options)


@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize(("page", "chunk"), [(1, 7), (16, 5), (1, -1)])
def test_outputs_are_those_of_their_prompts_across_the_boundary(page: int, chunk: int, overlap: str) -> None:
    top = top_of(total=320, page_size=page, chunked_prefill_size=chunk, overlap=overlap)
    draw = random.Random(page + chunk)
    shared = [draw.randrange(97) for _ in range(40)]
    prompts = {uid: [*shared[: draw.randint(1, 30)], uid] for uid in range(1, 13)}
    for uid, prompt in prompts.items():
        top.add(uid, prompt, 20)
    top.run()
    for uid, prompt in prompts.items():
        assert top.tokens[uid] == expected_output(prompt, 20)
        assert top.finish[uid].kind is FinishKind.LENGTH and top.opened[uid].prompt_tokens == len(prompt)


def test_one_that_grows_beyond_it_is_computed_once_more_and_counts_as_no_retraction() -> None:
    top = top_of(chunked_prefill_size=-1)
    top.add(1, list(range(20)), 10)
    top.run()
    assert top.tokens[1] == expected_output(list(range(20)), 10)
    assert top.finish[1].num_retractions == 0
    # 24 tokens, 25 again, and the last token is never read
    assert top.runner.computed_tokens == 24 + 25 + 4


def test_prefixes_are_shared_on_one_side_of_it_alone() -> None:
    top, prompt = top_of(), [i % 97 for i in range(60)]
    for uid, (length, cached) in enumerate(((20, 0), (24, 20), (25, 0), (40, 25), (23, 22), (60, 40)), 1):
        top.add(uid, prompt[:length], 0)
        top.run()
        assert top.opened[uid].cached_tokens == cached


@pytest.mark.parametrize("first", range(0, 60, 20))
@pytest.mark.parametrize("overlap", ["off", "on"])
def test_random_schedules_are_what_they_are_without_one(first: int, overlap: str) -> None:
    """Aborts, shortages, stop texts, leases: clients see the same, but when."""
    for seed in range(first, first + 20):
        schedule = make_schedule(seed)
        plain = play(schedule, "off")
        bounded = run(schedule, _with_tokenizer(schedule.options, overlap))
        for each in schedule.arrivals:
            if each.abort_after is None:
                for uid in range(each.uid, each.uid + each.asked.get("n", 1)):
                    assert what_clients_see(bounded, uid) == what_clients_see(plain, uid), (seed, uid)


def _with_tokenizer(options: dict[str, Any], overlap: str) -> BenchTop:
    return top_of(tokenizer=TOKENIZER, overlap=overlap, **options)
