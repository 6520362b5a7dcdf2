"""Constraints under random schedules: jumps, plain and overlapped loops, shortages and aborts change no output.

The schedules are those of test_overlap.py, with a constraint for most requests: retractions, aborts in the middle of a
jump, samples, chunked and cached prompts, penalties, stop texts, log-probabilities.
"""

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bench_top import BenchTop
from grammars import Grammars
from schedules import TOKENIZER, Schedule, make_schedule, run, what_clients_see

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import Constraint, ConstraintKind

END = 0
TOWNS = ["Paris", "London", "Ålesund"]
WORDS = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 4}, "town": {"enum": TOWNS}},
        "required": ["name", "town"],
        "additionalProperties": False,
    }
)


def is_json(text: str) -> bool:
    value = json.loads(text)
    return list(value) == ["name", "town"] and len(value["name"]) <= 4 and value["town"] in TOWNS


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


PATTERNS = [
    r"(abc|abd)+ is (true|false)",
    r"[0-9]{1,3}\.[0-9]{1,3}",
    r"yes",
    r"Name: [a-z]{1,6}\n(Age: [1-9][0-9]\n)?",
    r"(ё|я){2}!",
]
CASES: list[tuple[Constraint, Callable[[str], bool]]] = [
    *((Constraint(ConstraintKind.REGEX, pattern), matches(pattern)) for pattern in PATTERNS),
    (Constraint(ConstraintKind.JSON_SCHEMA, WORDS), is_json),
    (Constraint(ConstraintKind.EBNF, 'root ::= "(" root ")" | [a-c]'), matches(r"\(*[a-c]\)*")),
    (Constraint(ConstraintKind.REGEX, PATTERNS[0], after="ab"), lambda text: True),
    (Constraint(ConstraintKind.REGEX, "a{3,9}b", after="a", opens="<think>"), matches(r"(?s)(<think>.*?a)?a{3,9}b")),
]


def constrained(seed: int) -> tuple[Schedule, dict[int, Callable[[str], bool]]]:
    """A schedule, and how each output is checked, by uid."""
    draw, schedule = random.Random(seed), make_schedule(seed)
    arrivals, checks = [], dict[int, Callable[[str], bool]]()
    for each in schedule.arrivals:
        asked = dict(each.asked)
        if draw.random() < 0.8:
            asked["constraint"], check = draw.choice(CASES)
            checks |= dict.fromkeys(range(each.uid, each.uid + asked.get("n", 1)), check)
        arrivals.append(replace(each, asked=asked))
    return replace(schedule, options={**schedule.options, "eos_ids": [END]}, arrivals=arrivals), checks


GRAMMARS = Grammars(TOKENIZER, frozenset([END]))


def play(schedule: Schedule, **options: Any) -> BenchTop:
    return run(schedule, BenchTop(tokenizer=TOKENIZER, grammars=GRAMMARS, **schedule.options, **options))


def check(seed: int) -> None:
    schedule, checks = constrained(seed)
    off = play(schedule, jump_forward="off", overlap="off")
    for options in (
        {"jump_forward": "ff", "overlap": "off"},
        {"jump_forward": "off", "overlap": "on"},
        {"jump_forward": "ff", "overlap": "on"},
    ):
        other = play(schedule, **options)
        assert other.finish.keys() == off.finish.keys()
        for uid in off.finish:
            if FinishKind.ABORT in (off.finish[uid].kind, other.finish[uid].kind):
                shorter = min(len(off.tokens[uid]), len(other.tokens[uid]))
                assert off.tokens[uid][:shorter] == other.tokens[uid][:shorter], (seed, uid, options)
            else:
                assert what_clients_see(off, uid) == what_clients_see(other, uid), (seed, uid, options)
        nothing_is_lost(other, seed)
    for overlap in ("off", "on"):
        retokenized = play(schedule, jump_forward="retokenize", overlap=overlap)
        keeps_to_constraints(retokenized, checks, seed)
        nothing_is_lost(retokenized, seed)
    keeps_to_constraints(off, checks, seed)


def keeps_to_constraints(top: BenchTop, checks: dict[int, Callable[[str], bool]], seed: int) -> None:
    for uid, finish in top.finish.items():
        if uid in checks and finish.kind is FinishKind.STOP and finish.matched == END:
            text = TOKENIZER.decode(top.tokens[uid])
            assert checks[uid](text), (seed, uid, text)


def nothing_is_lost(top: BenchTop, seed: int) -> None:
    state = top.reporter.state()
    assert state["leased_tokens"] == state["owned_tokens"] == state["penalty_slots"] == 0, seed
    top.clock.advance(100)
    top.turn()
    assert top.scheduler.cache.tree.locked_tokens == len(top.features.leases.leases) == 0, seed
    assert state["generated_tokens"] == sum(map(len, top.tokens.values())), seed


@pytest.mark.parametrize("first", range(0, 30, 5))
def test_every_way_to_run_gives_the_same_outputs(first: int):
    for seed in range(first, first + 5):
        check(seed)


@pytest.mark.parametrize("seed", [109, 443])
def test_the_end_of_a_thought_is_replaced_where_memory_is_short(seed: int):
    check(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_every_way_to_run_gives_the_same_outputs_for_long(first: int):
    for seed in range(first, first + 100):
        check(seed)
