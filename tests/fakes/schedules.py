"""Random schedules of requests: arrivals, aborts, shortages, stop texts, penalties, everything that may be asked."""

import random
from dataclasses import dataclass, replace
from typing import Any

from bench_top import BenchTop
from hash_runner import VOCABULARY

from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.replies.long_list import Listed, LongList, parts_of
from ramet.runtime.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.from_folder(BUNDLED_MODEL)


@dataclass(frozen=True)
class Arrival:
    turn: int
    uid: int
    prompt: list[int]
    num_new: int
    asked: dict[str, Any]
    abort_after: int | None


@dataclass(frozen=True)
class Schedule:
    options: dict[str, Any]
    arrivals: list[Arrival]


def make_schedule(seed: int) -> Schedule:
    draw = random.Random(seed)
    page = draw.choice([1, 1, 16])
    options = dict(
        total=draw.choice([64, 80, 1024]) // page * page,
        rows=draw.choice([1, 4, 6, 8]),
        context=112,
        page_size=page,
        chunked_prefill_size=draw.choice([1, 5, 16, 64, -1]),
        schedule_policy=draw.choice(["lpm", "fcfs", "dfs-weight", "random"]),
        schedule_conservativeness=draw.choice([0.01, 1.0]),
        disable_radix_cache=draw.random() < 0.2,
        prefix_cache="list" if seed % 5 == 3 else "tree",
        repetition_penalty_scope=draw.choice(["generated", "all"]),
        eos_ids=draw.sample(range(VOCABULARY), draw.choice([0, 0, 3])),
    )
    arrivals, uid, turn = [], 1, 0
    for _ in range(draw.randint(2, 12)):
        turn += draw.choice([0, 0, 1, 4])
        arrivals.append(_arrival(draw, turn, uid))
        if uid > 1 and draw.random() < 0.3:
            arrivals[-1] = replace(arrivals[-1], prompt=arrivals[-2].prompt)
        uid += arrivals[-1].asked.get("n", 1)
    return Schedule(options, arrivals)


def _arrival(draw: random.Random, turn: int, uid: int) -> Arrival:
    shared = [(draw.randint(0, 2) * 7 + i) % VOCABULARY for i in range(draw.choice([0, 0, 17, 17, 40]))]
    prompt = shared + [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 12))]
    asked: dict[str, Any] = {}
    if draw.random() < 0.3:
        asked["n"] = draw.randint(2, 3)
    if draw.random() < 0.3:
        asked |= {"temperature": 0.7, "sampling_seed": draw.randrange(100)}
    if draw.random() < 0.25:
        asked["stop"] = tuple(TOKENIZER.decode([draw.randrange(5, VOCABULARY)]) or "x" for _ in range(3))
    if draw.random() < 0.15:
        asked["stop_regex"] = ("[aeiou] ?[b-d]",)
    if draw.random() < 0.25:
        asked["stop_token_ids"] = tuple(draw.sample(range(VOCABULARY), 3))
    if draw.random() < 0.25:
        asked["frequency_penalty"] = 1.0
    if draw.random() < 0.25:
        asked["logprobs"] = LogprobSpec(draw.choice([None, 0, len(prompt) // 2]), draw.randint(0, 2), (5, 9))
    if draw.random() < 0.2:
        asked["hidden"] = draw.choice(list(HiddenMode))
    num_new = draw.choice([0, 1, 2, 9, 30, 30])
    if draw.random() < 0.2:
        asked["min_new_tokens"] = draw.randint(0, num_new)
    if draw.random() < 0.5:
        asked["prefix_lease_s"] = draw.choice([0, 2, 100, 100, 100])
    asked["priority"] = draw.choice([0, 0, 1])
    return Arrival(turn, uid, prompt, num_new, asked, draw.choice([None, None, None, 0, 3, 12]))


def play(schedule: Schedule, overlap: str) -> BenchTop:
    return run(schedule, BenchTop(tokenizer=TOKENIZER, overlap=overlap, **schedule.options))


def run(schedule: Schedule, top: BenchTop) -> BenchTop:
    waiting, turn = list(schedule.arrivals), 0
    while waiting or not top.scheduler.idle:
        while waiting and waiting[0].turn <= turn:
            each = waiting.pop(0)
            top.add(each.uid, each.prompt, each.num_new, **each.asked)
        for each in schedule.arrivals:
            if each.abort_after is not None and turn == each.turn + each.abort_after:
                top.abort(*range(each.uid, each.uid + each.asked.get("n", 1)))
        top.turn()
        top.clock.advance(0.25)
        turn += 1
        assert turn < 20_000, "it never ends"
    return top


def made(entries: Listed) -> list[Any]:
    return LongList(parts_of(entries)).whole()


def what_clients_see(top: BenchTop, uid: int) -> dict[str, Any]:
    """All but when: how much of a prompt was found in the cache, and how often a request was retracted."""
    finish, logprobs, hidden = top.finish[uid], top.scores.get(uid), top.hidden.get(uid)
    return {
        "tokens": top.tokens[uid],
        "finish": (finish.kind, finish.matched, finish.length, finish.cut, finish.error),
        "prompt_tokens": top.opened[uid].prompt_tokens,
        "logprobs": logprobs and {name: made(entries) for name, entries in logprobs.meta().items()},
        "hidden": hidden and made(hidden.meta()),
    }
