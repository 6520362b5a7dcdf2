"""Random prompts with parallel contexts, among others, with aborts and shortages: each is what its prompt implies.

The model is `SeeingModel`: each token is a hash of its id, its position and all that it sees. The scheduler runs on a
device whose slots hold just that.
"""

import random
from typing import Any

import pytest
from bench_top import BenchTop
from context_prompts import without_known_logprob
from hash_runner import hidden_state
from schedules import made
from seeing_runner import LateSeeingRunner, SeeingModel, SeeingRunner

from ramet.ipc.content import Contexts
from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.scheduler.features.contexts import groups_of, memory_of_parts


def scenario_of(seed: int) -> dict[str, Any]:
    """A text is (which, length), the same whenever this is: requests share texts and contexts."""
    draw = random.Random(seed)
    page = draw.choice([1, 1, 16])
    return {
        "arrivals": [arrival_of(draw) for _ in range(draw.randint(1, 7))],
        "page_size": page,
        "chunk": draw.choice([1, 7, 64, -1]),
        "total": draw.choice([128, 192, 2048]) if page == 1 else draw.choice([320, 512, 2048]),
        "rows": draw.randint(1, 6),
        "cache": draw.choice(["tree", "tree", "list", "off"]),
        "overlap": draw.choice(["off", "on"]),
    }


def arrival_of(draw: random.Random) -> dict[str, Any]:
    groups = []
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        contexts = [(draw.randint(0, 3), draw.choice([1, 5, 16, 20])) for _ in range(draw.randint(1, 3))]
        groups.append(((draw.randint(0, 1), draw.choice([0, 1, 16, 35])), contexts))
    return {
        "groups": groups,
        "rest": [draw.randrange(97) for _ in range(draw.randint(1, 20))],
        "num_new": draw.choice([0, 1, 20, 60, 60]),
        "n": draw.choice([1, 1, 2, 3]),
        "turns_before": draw.choice([0, 0, 1, 3]),
        "abort_after": draw.choice([None, None, None, None, 0, 3, 20]),
        "logprob_start": draw.choice([None, None, 0, 5, 30]),
        "penalised": draw.random() < 0.3,
        "again": draw.random() < 0.3,  # the prompt of the request before
        "hidden": draw.choice([None, None, None, *HiddenMode]),
    }


def text_of(which: int, length: int) -> list[int]:
    return [(which * 31 + i * (which + 1)) % 97 for i in range(length)]


def prompt_of(arrival: dict[str, Any]) -> tuple[list[int], Contexts]:
    ids: list[int] = []
    groups = []
    for text, contexts in arrival["groups"]:
        ids += text_of(*text)
        groups.append((len(ids), *(length for _, length in contexts)))
        for which, length in contexts:
            ids += text_of(which + 3, length)
    return ids + arrival["rest"], tuple(groups)


@pytest.mark.parametrize("first", range(100, 140, 20))
def test_every_output_is_what_its_prompt_implies_and_nothing_is_lost(first: int):
    for seed in range(first, first + 20):
        check_scenario(**scenario_of(seed))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 9000, 1000))
def test_for_long(first: int):
    for seed in range(first, first + 1000):
        check_scenario(**scenario_of(seed))


def test_the_scenarios_reach_what_they_are_for():
    """Memory really runs out, also while contexts are computed; contexts are found again, and requests are aborted."""
    retractions = cached = aborts = 0
    for seed in range(100):
        top = check_scenario(**scenario_of(seed))
        retractions += top.scheduler.running.num_retractions
        cached += top.scheduler.results.cached_tokens
        aborts += sum("by the client" in str(finish.error) for finish in top.finish.values())
    assert retractions > 10 and cached > 1000 and aborts > 10, (retractions, cached, aborts)


def check_scenario(
    arrivals: list[dict[str, Any]],
    page_size: int,
    chunk: int,
    total: int,
    rows: int,
    cache: str,
    overlap: str,
) -> BenchTop:
    top = BenchTop(
        total=total,
        rows=rows,
        context=448,
        page_size=page_size,
        chunked_prefill_size=chunk,
        schedule_conservativeness=0.01,
        disable_radix_cache=cache == "off",
        prefix_cache="list" if cache == "list" else "tree",
        overlap=overlap,
        runners=(SeeingRunner, LateSeeingRunner),
    )
    asked: dict[int, tuple[list[int], Contexts, dict[str, Any]]] = {}
    aborts: dict[int, list[int]] = {}
    turn, uid = 0, 1
    prompt: tuple[list[int], Contexts] = ([1], ())
    for arrival in arrivals:
        for _ in range(arrival["turns_before"]):
            turn = one_turn(top, turn, aborts)
        prompt = prompt if arrival["again"] else prompt_of(arrival)
        more: dict[str, Any] = {}
        if arrival["logprob_start"] is not None:
            more["logprobs"] = LogprobSpec(min(arrival["logprob_start"], len(prompt[0]) - 1), 2, (5,))
        if arrival["hidden"] is not None:
            more["hidden"] = arrival["hidden"]
        if arrival["penalised"]:
            more["frequency_penalty"] = 1.0  # never draws a token twice
        top.add(uid, prompt[0], arrival["num_new"], n=arrival["n"], contexts=prompt[1], **more)
        for each in range(uid, uid + arrival["n"]):
            asked[each] = (*prompt, arrival)
        if arrival["abort_after"] is not None:
            aborts.setdefault(turn + arrival["abort_after"], []).append(uid)
        uid += arrival["n"]
    for _ in range(20_000):
        turn = one_turn(top, turn, aborts)
        if top.scheduler.idle:
            break
    assert set(top.finish) == set(asked)
    for uid, (ids, contexts, arrival) in asked.items():
        check_request(top, uid, ids, contexts, arrival)
    state = top.reporter.state()
    assert state["leased_tokens"] == state["owned_tokens"] == 0
    assert state["free_tokens"] + state["cached_tokens_in_tree"] == total
    return top


def check_request(top: BenchTop, uid: int, ids: list[int], contexts: Contexts, arrival: dict[str, Any]) -> None:
    finish, tokens = top.finish[uid], top.tokens[uid]
    if "do not fit" in str(finish.error):
        parts = memory_of_parts(groups_of(contexts), 16, copies=top.scheduler.cache.copies)
        assert len(ids) + arrival["num_new"] + parts > top.scheduler.cache.total_tokens
        return
    if finish.kind is FinishKind.ABORT:
        assert arrival["abort_after"] is not None
    model = SeeingModel(ids, contexts)
    whole = model.output(arrival["num_new"], repeats=not arrival["penalised"])
    assert tokens == (whole if finish.kind is not FinishKind.ABORT else whole[: len(tokens)])
    if arrival["logprob_start"] is not None and finish.kind is not FinishKind.ABORT:
        start = min(arrival["logprob_start"], len(ids) - 1)
        told = made(top.scores[uid].meta()["input_token_logprobs"])
        bare = without_known_logprob(contexts) | {start}
        assert [token for _, token, _ in told] == ids[start:]
        assert [value for value, _, _ in told] == [
            None if i in bare else model.logprob(i) for i in range(start, len(ids))
        ]
    if arrival["hidden"] is HiddenMode.ALL and finish.kind is not FinishKind.ABORT:
        prompt, *output = made(top.hidden[uid].meta())
        states = [hidden_state(model.reads(i)) for i in range(len(ids) + max(arrival["num_new"] - 1, 0))]
        assert prompt + output == states


def one_turn(top: BenchTop, turn: int, aborts: dict[int, list[int]]) -> int:
    if turn in aborts:
        top.abort(*aborts[turn])
    top.turn()
    top.clock.advance(0.25)
    return turn + 1
