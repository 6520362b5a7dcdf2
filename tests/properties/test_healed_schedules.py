"""Healed prompts under random schedules: loops, jumps, shortages of memory, chunks and caches change no output.

The schedules are those of test_constrained_schedules.py, with prompts that are healed: retractions in the middle of a
search, aborts, samples, penalties, stop texts, log-probabilities, hidden states, constraints that begin inside a token.
"""

import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_top import BenchTop
from grammars import Grammars
from msgspec import structs
from samples import slow
from schedules import TOKENIZER, Schedule, make_schedule, run, what_clients_see

from ramet.ipc.messages import FinishKind
from ramet.runtime.scheduler.features.healing import NOTHING_LEFT

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_constrained_schedules import CASES

END = 0
GRAMMARS = Grammars(TOKENIZER, frozenset([END]))
LETTERS = [TOKENIZER.encode(each)[0] for each in "the and in of on er .\nèя" if TOKENIZER.encode(each)]


def healed(seed: int) -> Schedule:
    draw, schedule = random.Random(seed), make_schedule(seed)
    arrivals = []
    for each in schedule.arrivals:
        asked = {**each.asked, "token_healing": draw.random() < 0.8}
        if draw.random() < 0.5:
            asked["constraint"], _ = draw.choice(CASES)
        if (logprobs := asked.get("logprobs")) is not None and logprobs.start is not None:
            asked["logprobs"] = structs.replace(logprobs, start=0)
        prompt = [*each.prompt[:20], *draw.choices(LETTERS, k=draw.randint(1, 6))]
        arrivals.append(replace(each, prompt=prompt, asked=asked))
    return replace(schedule, options={**schedule.options, "eos_ids": [END]}, arrivals=arrivals)


def play(schedule: Schedule, **options: Any) -> BenchTop:
    return run(schedule, BenchTop(tokenizer=TOKENIZER, grammars=GRAMMARS, **{**schedule.options, **options}))


def check(seed: int) -> Counter[str]:
    schedule, seen = healed(seed), Counter[str]()
    off = play(schedule, jump_forward="off", overlap="off")
    for options in (
        {"jump_forward": "ff", "overlap": "off"},
        {"jump_forward": "off", "overlap": "on"},
        {"jump_forward": "ff", "overlap": "on"},
        {"jump_forward": "off", "overlap": "on", "total": 4096, "disable_radix_cache": True, "page_size": 16},
        {"jump_forward": "ff", "overlap": "off", "total": 4096, "chunked_prefill_size": -1},
    ):
        if "total" in options and any(each.num_new + len(each.prompt) > 60 for each in schedule.arrivals):
            continue  # some were refused for their size
        other = play(schedule, **options)
        assert other.finish.keys() == off.finish.keys()
        for uid in off.finish:
            ends = off.finish[uid], other.finish[uid]
            if any(end.kind is FinishKind.ABORT and end.error.fact != NOTHING_LEFT for end in ends):
                shorter = min(len(off.tokens[uid]), len(other.tokens[uid]))
                assert off.tokens[uid][:shorter] == other.tokens[uid][:shorter], (seed, uid, options)
            else:
                assert what_clients_see(off, uid) == what_clients_see(other, uid), (seed, uid, options)
        nothing_is_lost(other, seed)
        seen["retracted"] += sum(finish.num_retractions > 0 for finish in other.finish.values())
    for overlap in ("off", "on"):
        nothing_is_lost(play(schedule, jump_forward="retokenize", overlap=overlap), seed)
    for uid, tokens in off.tokens.items():
        length = off.opened[uid].tail_bytes
        if length and tokens:
            sizes = [len(TOKENIZER.token_bytes(token) or b"") for token in tokens]
            num = next(i for i in range(1, len(sizes) + 1) if sum(sizes[:i]) >= length)
            seen["healed"] += 1
            seen["by several"] += num > 1
            seen["into the output"] += sum(sizes[:num]) > length
    seen["nothing left"] += sum(finish.aborted and finish.error.fact == NOTHING_LEFT for finish in off.finish.values())
    return seen


def nothing_is_lost(top: BenchTop, seed: int) -> None:
    state = top.reporter.state()
    assert state["leased_tokens"] == state["owned_tokens"] == state["penalty_slots"] == 0, seed
    top.clock.advance(100)
    top.turn()
    assert top.scheduler.cache.tree.locked_tokens == len(top.features.leases.leases) == 0, seed
    assert state["generated_tokens"] == sum(map(len, top.tokens.values())), seed


@pytest.mark.parametrize("first", [slow(0), 120])
def test_every_way_to_run_gives_the_same_outputs(first: int) -> None:
    seen = Counter[str]()
    for seed in range(first, first + 30):
        seen += check(seed)
    least = {"healed": 50, "by several": 10, "into the output": 30, "retracted": 2}
    assert all(seen[what] > number for what, number in least.items()), seen


@pytest.mark.parametrize("seed", [65, 125, 261, 933])
def test_a_thought_may_begin_only_right_after_the_prompts_end(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_every_way_to_run_gives_the_same_outputs_for_long(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)
