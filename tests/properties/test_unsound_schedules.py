"""Random schedules in which some prompts, or their outputs, are not finite: others get what a fresh server gives.

The model is that of spoilt_runner.py. Nothing is lost, and no request is computed for ever.
"""

from typing import Any

import pytest
from bench_top import BenchTop
from hash_runner import expected_output, hidden_state, logprob
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from spoilt_runner import BAD, RUNNERS

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import HiddenMode, LogprobSpec

ARRIVAL = st.fixed_dictionaries(
    {
        "family": st.integers(0, 1),  # prompts of a family share a prefix
        "shared": st.integers(0, 50),
        "own": st.lists(st.integers(0, 95), min_size=1, max_size=30),
        "bad_at": st.sampled_from([None, None, 0, 1, -1]),  # in `own`
        "num_new": st.sampled_from([0, 0, 1, 5, 40]),
        "turns_before": st.integers(0, 3),
        "abort_after": st.none() | st.integers(0, 30),
        "lease_s": st.sampled_from([None, None, 5]),
        "asks": st.sampled_from(["", "logprobs", "hidden"]),
    }
)


@pytest.mark.timeout(1800)
@examples(60, 3000)
@given(
    arrivals=st.lists(ARRIVAL, min_size=2, max_size=12),
    kind=st.sampled_from(["tree", "list", "states"]),
    options=st.fixed_dictionaries(
        {
            "overlap": st.sampled_from(["off", "on"]),
            "page_size": st.sampled_from([1, 16]),
            "chunked_prefill_size": st.sampled_from([7, 24, -1]),
            "total": st.sampled_from([192, 1024]),
            "rows": st.integers(1, 6),
        }
    ),
)
def test_what_is_not_finite_reaches_nobody_else(arrivals: list[dict], kind: str, options: dict[str, Any]) -> None:
    cache = "list" if kind == "list" else "tree"
    top = BenchTop(runners=RUNNERS[kind], prefix_cache=cache, context=128, **options)
    prompts: dict[int, list[int]] = {}
    for uid, arrival in enumerate(arrivals, start=1):
        for _ in range(arrival["turns_before"]):
            top.turn()
        own = list(arrival["own"])
        if arrival["bad_at"] is not None:
            own[arrival["bad_at"] % len(own)] = BAD
        prompts[uid] = [(arrival["family"] * 7 + i) % 90 for i in range(arrival["shared"])] + own
        lease_s = arrival["lease_s"] if cache == "tree" else None
        top.add(uid, prompts[uid], arrival["num_new"], prefix_lease_s=lease_s, **_asked(arrival))
    for turn in range(5_000):
        for uid, arrival in enumerate(arrivals, start=1):
            if arrival["abort_after"] == turn:
                top.abort(uid)
        top.turn()
        if top.scheduler.idle:
            break
    assert set(top.finish) == set(prompts)
    for uid, prompt in prompts.items():
        _check(top, uid, prompt, arrivals[uid - 1])
    top.clock.advance(100)
    top.turn()
    state = top.reporter.state()
    assert state["leased_tokens"] == state["owned_tokens"] == 0
    assert not top.scheduler.results._answers.apart
    top.scheduler.control.flush()
    top.turn()
    assert top.scheduler.cache.free_tokens == options["total"]


def _asked(arrival: dict[str, Any]) -> dict[str, Any]:
    match arrival["asks"]:
        case "logprobs":
            return {"logprobs": LogprobSpec(start=arrival["shared"])}
        case "hidden" if not arrival["num_new"]:
            return {"hidden": HiddenMode.LAST}
        case _:
            return {}


def _check(top: BenchTop, uid: int, prompt: list[int], arrival: dict[str, Any]) -> None:
    num_new, finish = arrival["num_new"], top.finish[uid]
    whole = expected_output(prompt, num_new)
    sound = num_new if BAD not in whole[:-1] else whole.index(BAD) + 1
    if BAD in prompt:
        sound = 0
    if finish.kind is FinishKind.ABORT:
        assert top.tokens[uid] == whole[: len(top.tokens[uid])] and len(top.tokens[uid]) <= sound
        may_abort = sound < num_new or arrival["abort_after"] is not None or finish.error.place == "prefix_lease_s"
        assert may_abort, finish
        return
    assert top.tokens[uid] == whole and sound == num_new
    if BAD in prompt:
        return
    if "hidden" in _asked(arrival):
        assert top.hidden[uid].meta() == hidden_state(prompt)
    if "logprobs" in _asked(arrival):
        expected = [logprob(prompt[:i], prompt[i]) for i in range(arrival["shared"], len(prompt))]
        assert [place.token[0] for place in top.scores[uid].prompt][1:] == expected[1:]
