"""Random arrivals, aborts, shortages and leases of clients: every output is what the prompt alone implies.

The model is `expected_output`: a function of the prompt. The scheduler runs on HashRunner, whose tokens depend on what
can be read through the slot table, so a slot that is lost, shared or overwritten shows as a wrong token.
"""

from typing import Any

import pytest
from bench_top import BenchTop
from hash_runner import expected_output
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.ipc.messages import FinishKind, ProgramsEnded
from ramet.ipc.spec import FollowUp
from ramet.runtime.scheduler.features.follow_ups import KEPT_S

PROGRAMS = ("a", "b")
ARRIVAL = st.fixed_dictionaries(
    {
        "family": st.integers(0, 3),  # prompts of a family share a prefix
        "shared": st.integers(0, 50),
        "own": st.lists(st.integers(0, 96), min_size=1, max_size=30),
        "num_new": st.integers(0, 40),
        "turns_before": st.integers(0, 3),
        "abort_after": st.none() | st.integers(0, 30),
        "namespace": st.sampled_from([(), ("a",)]),
        "again": st.booleans(),  # the prompt of the request before
        "lease_s": st.sampled_from([None, None, None, 0, 1, 5, 100]),
        "follow_up": st.none()
        | st.builds(FollowUp, st.sampled_from(PROGRAMS), st.integers(0, 2), st.sampled_from(PROGRAMS)),
        "ended": st.none() | st.sampled_from(PROGRAMS),  # a program, when this request arrives
    }
)


SCENARIO = {
    "arrivals": st.lists(ARRIVAL, min_size=1, max_size=14),
    "page_size": st.sampled_from([1, 16, 64]),
    "chunk": st.sampled_from([1, 7, 64, -1]),
    "total": st.sampled_from([128, 192, 1024]),
    "rows": st.integers(1, 8),
    "policy": st.sampled_from(["lpm", "dfs-weight", "fcfs", "lof", "random"]),
    "cache": st.sampled_from(["tree", "tree", "list", "off"]),
}


@pytest.mark.timeout(1800)
@examples(40, 3000)
@given(**SCENARIO)
def test_every_output_is_what_its_prompt_implies_and_nothing_is_lost(**scenario: Any):
    check_scenario(**scenario)


def check_scenario(
    arrivals: list[dict], page_size: int, chunk: int, total: int, rows: int, policy: str, cache: str
) -> None:
    top = BenchTop(
        total=total,
        rows=rows,
        context=128,
        page_size=page_size,
        chunked_prefill_size=chunk,
        schedule_policy=policy,
        schedule_conservativeness=0.01,
        disable_radix_cache=cache == "off",
        prefix_cache="list" if cache == "list" else "tree",
    )
    prompts: dict[int, list[int]] = {}
    aborts: list[tuple[int, int]] = []  # (turn, uid)
    turn = 0
    for uid, arrival in enumerate(arrivals, start=1):
        for _ in range(arrival["turns_before"]):
            turn = one_turn(top, turn, aborts)
        prompts[uid] = [(arrival["family"] * 7 + i) % 97 for i in range(arrival["shared"])] + arrival["own"]
        if arrival["again"] and uid > 1:
            prompts[uid] = prompts[uid - 1]
        asked = {"namespace": arrival["namespace"], "prefix_lease_s": arrival["lease_s"]}
        asked["follow_up"] = arrival["follow_up"]
        if arrival["ended"] is not None:
            top.inbox.send(ProgramsEnded([arrival["ended"]]))
        top.add(uid, prompts[uid], arrival["num_new"], **asked)
        if arrival["abort_after"] is not None:
            aborts.append((turn + arrival["abort_after"], uid))
    for _ in range(20_000):
        turn = one_turn(top, turn, aborts)
        if top.scheduler.idle:
            break
    assert set(top.finish) == set(prompts)
    for uid, prompt in prompts.items():
        whole = expected_output(prompt, arrivals[uid - 1]["num_new"])
        if top.finish[uid].kind is FinishKind.ABORT:
            assert top.tokens[uid] == whole[: len(top.tokens[uid])]
        else:
            assert top.tokens[uid] == whole
    top.clock.advance(KEPT_S)
    top.turn()
    state = top.reporter.state()
    assert state["leased_tokens"] == state["owned_tokens"] == 0
    assert state["free_tokens"] + state["cached_tokens_in_tree"] == total
    assert state["prefix_lease_tokens"] <= total // 2
    top.clock.advance(100)
    top.turn()
    assert top.scheduler.cache.tree.locked_tokens == len(top.features.leases.leases) == 0


def one_turn(top: BenchTop, turn: int, aborts: list[tuple[int, int]]) -> int:
    for when, uid in aborts:
        if when == turn:
            top.abort(uid)
    top.turn()
    top.clock.advance(0.1)
    return turn + 1
