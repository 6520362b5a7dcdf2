"""Keys that are not finite reach nobody who shares a prefix with the request that made them.

The model is that of spoilt_runner.py: sequences that have read the token BAD have no finite logits.
"""

from typing import Any

import pytest
from bench_top import BenchTop
from hash_runner import expected_output, hidden_state, logprob
from seeing_runner import SeeingModel
from spoilt_runner import BAD, RUNNERS

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import HiddenMode, LogprobSpec

SHARED = [i % 90 for i in range(3, 67)]  # 64 tokens
OWN = [i % 80 for i in range(200, 230)]
OPTIONS = [
    {"overlap": overlap, "page_size": page, "chunked_prefill_size": chunk, "kind": kind}
    for overlap in ("off", "on")
    for page, chunk in ((1, -1), (1, 16), (16, 24), (16, -1))
    for kind in ("tree", "list", "states")
]


def top_of(kind: str = "tree", **options: Any) -> BenchTop:
    return BenchTop(runners=RUNNERS[kind], prefix_cache="list" if kind == "list" else "tree", **options)


def told(top: BenchTop, uid: int) -> tuple[list[int], FinishKind]:
    return top.tokens[uid], top.finish[uid].kind


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_later_request_gets_what_a_fresh_server_tells_it(options: dict[str, Any]) -> None:
    top = top_of(**options)
    top.add(1, [*SHARED, BAD, *OWN], 4)
    top.run()
    assert top.finish[1].error.status == 500 and "not finite" in str(top.finish[1].error) and not top.tokens[1]
    computed = top.runner.computed_tokens
    top.add(2, SHARED, 6)
    top.run()
    assert told(top, 2) == (expected_output(SHARED, 6), FinishKind.LENGTH)
    assert top.finish[2].num_retractions == 0, "it has found keys that had to be computed again"
    assert top.runner.computed_tokens - computed == len(SHARED) + 5


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_those_that_wait_for_its_prefix_get_it_as_well(options: dict[str, Any]) -> None:
    top = top_of(**options)
    top.add(1, [*SHARED, BAD, *OWN], 4)
    for uid in range(2, 6):
        top.add(uid, [*SHARED, uid] if uid % 2 else SHARED, 6)
    top.run()
    assert top.finish[1].error.status == 500
    for uid in range(2, 6):
        assert told(top, uid) == (expected_output([*SHARED, uid] if uid % 2 else SHARED, 6), FinishKind.LENGTH)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_one_that_is_never_drawn_from_harms_nobody(options: dict[str, Any]) -> None:
    """Nothing is known of its logits: who finds its keys is computed once more, and then they are gone."""
    top = top_of(**options)
    top.add(1, [*SHARED, BAD, *OWN], 0)
    top.run()
    for uid in (2, 3):
        top.add(uid, SHARED, 6)
        top.run()
        assert told(top, uid) == (expected_output(SHARED, 6), FinishKind.LENGTH)
    assert top.finish[3].num_retractions == 0


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_sound_prefix_stays_cached(options: dict[str, Any]) -> None:
    top = top_of(**options)
    top.add(1, SHARED, 1)
    top.run()
    for uid in (2, 3):
        top.add(uid, [*SHARED, BAD, *OWN], 4)
        top.run()
        assert top.finish[uid].error.status == 500
    top.add(4, [*SHARED, 5], 6)
    top.run()
    assert told(top, 4) == (expected_output([*SHARED, 5], 6), FinishKind.LENGTH)
    last = len(SHARED) - (options["page_size"] == 1 and options["kind"] == "states")  # where a prompt's state is kept
    assert top.opened[4].cached_tokens == last


def test_one_that_others_hold_is_found_by_nobody_and_goes_when_it_is_let_go() -> None:
    top = top_of(chunked_prefill_size=16)
    top.add(1, [*SHARED, BAD, *OWN], 0, prefix_lease_s=100.0)
    top.run()
    top.add(2, SHARED, 6)
    top.run()
    assert told(top, 2) == (expected_output(SHARED, 6), FinishKind.LENGTH)
    top.add(3, [*SHARED, 7], 6)
    top.run()
    assert told(top, 3) == (expected_output([*SHARED, 7], 6), FinishKind.LENGTH)
    assert top.finish[3].num_retractions == 0
    top.clock.advance(101.0)
    top.turn()
    top.scheduler.control.flush()
    top.turn()
    assert top.scheduler.cache.free_tokens == top.scheduler.cache.total_tokens


def test_an_output_that_stops_being_finite_is_computed_once_more_and_no_more() -> None:
    top = top_of()
    prompt = next(p for p in ([*SHARED, i] for i in range(90)) if BAD in expected_output(p, 39))
    top.add(1, SHARED, 1)
    top.run()
    top.add(2, prompt, 40)
    top.run()
    first = expected_output(prompt, 40).index(BAD) + 1
    assert top.tokens[2] == expected_output(prompt, first) and top.finish[2].error.status == 500
    assert top.finish[2].num_retractions == 1


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_last_hidden_state_is_that_of_a_fresh_server(overlap: str) -> None:
    top = top_of(overlap=overlap)
    top.add(1, [*SHARED, BAD, *OWN], 0, hidden=HiddenMode.LAST)
    top.run()
    for uid in (2, 3):
        top.add(uid, SHARED, 0, hidden=HiddenMode.LAST)
        top.run()
        assert top.hidden[uid].meta() == hidden_state(SHARED)
    assert top.finish[3].num_retractions == 0


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_logprobs_of_a_prompt_are_those_of_a_fresh_server(overlap: str) -> None:
    top = top_of(overlap=overlap, chunked_prefill_size=24)
    top.add(1, [*SHARED, BAD, *OWN], 0)
    top.run()
    for uid in (2, 3):
        ids = [*SHARED, *OWN]
        top.add(uid, ids, 0, logprobs=LogprobSpec(start=len(SHARED)))
        top.run()
        expected = [logprob(ids[:i], ids[i]) for i in range(len(SHARED) + 1, len(ids))]
        assert [place.token[0] for place in top.scores[uid].prompt][1:] == expected
    assert top.finish[3].num_retractions == 0


def test_a_prompt_that_is_not_finite_itself_leaves_what_others_computed() -> None:
    """Nothing is drawn here, so its end with the second result looks like any other."""
    top = top_of()
    top.add(1, SHARED, 1)
    top.run()
    top.add(2, [*SHARED, BAD, *OWN], 0, hidden=HiddenMode.LAST)
    top.run()
    top.add(3, [*SHARED, 5], 1)
    top.run()
    assert top.opened[3].cached_tokens == len(SHARED)


@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize("page", [1, 16])
def test_a_context_of_one_prompt_does_not_spoil_it_for_others(page: int, overlap: str) -> None:
    top = top_of("contexts", page_size=page, overlap=overlap, chunked_prefill_size=24)
    sound, spoilt = SHARED[:40], [*SHARED[40:60], BAD]
    for uid, last in ((1, spoilt), (2, sound[::-1]), (3, sound[::-1])):
        ids, contexts = [*OWN, *sound, *last, *SHARED[:9]], ((len(OWN), len(sound), len(last)),)
        top.add(uid, ids, 5, contexts=contexts)
    top.run()
    assert top.finish[1].error.status == 500
    for uid in (4, 5):
        top.add(uid, ids, 5, contexts=contexts)
        top.run()
    for uid in (2, 3, 4, 5):
        assert told(top, uid) == (SeeingModel(ids, contexts).output(5), FinishKind.LENGTH)
    assert top.finish[5].num_retractions == 0
