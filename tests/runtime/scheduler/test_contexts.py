"""Prompts with parallel contexts: what is computed, what is found again, what is refused, and that nothing is lost."""

from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY
from seeing_runner import LateSeeingRunner, SeeingModel, SeeingRunner

from ramet.ipc.content import Contexts
from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import FollowUp, HiddenMode, LogprobSpec
from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.scheduler.step import Step


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


BEFORE, DOCUMENTS, QUESTION = text(1, 48), [text(seed, 32) for seed in (2, 3, 4)], text(5, 10)


def prompt_of(*documents: list[int], question: list[int] = QUESTION) -> tuple[list[int], Contexts]:
    ids = [*BEFORE, *(token for document in documents for token in document), *question]
    return ids, ((len(BEFORE), *map(len, documents)),)


def bench(**options: Any) -> BenchTop:
    settled = {"total": 1024, "context": 512, "rows": 8, "runners": (SeeingRunner, LateSeeingRunner)}
    return BenchTop(**{**settled, **options})


def ask(top: BenchTop, uid: int, prompt: tuple[list[int], Contexts], num_new: int = 5, **more: Any) -> int:
    """A request, to its end. Returns how many tokens were computed for it, those that it drew and read included."""
    before, (ids, contexts) = top.runner.computed_tokens, prompt
    top.add(uid, ids, num_new, contexts=contexts, **more)
    top.run()
    assert top.tokens[uid] == SeeingModel(ids, contexts).output(num_new)
    return top.runner.computed_tokens - before


def steps_of(top: BenchTop) -> list[Step]:
    steps = []
    while not (top.scheduler.idle and steps):
        top.scheduler.receive(block=False)
        step = top.scheduler.turn()
        steps += [] if step is None else [step]
    return steps


# -- what is computed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 16])
def test_contexts_are_rows_of_one_step(page_size: int):
    top = bench(page_size=page_size)
    ids, contexts = prompt_of(*DOCUMENTS)
    top.add(1, ids, 2, contexts=contexts)
    shapes = [step.batch.num_new.tolist() for step in steps_of(top)]
    assert shapes == [[48], [32, 32, 32], [10], [1]]


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_context_that_was_sent_alone_is_found(page_size: int):
    top = bench(page_size=page_size)
    ask(top, 1, ([*BEFORE, *DOCUMENTS[1]], ()), 1)
    computed = ask(top, 2, prompt_of(*DOCUMENTS), 1)
    assert computed == 2 * 32 + 10 + (48 + 32) % page_size
    assert top.opened[2].cached_tokens == 48 + 32


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_context_is_found_alone(page_size: int):
    top = bench(page_size=page_size)
    ask(top, 1, prompt_of(*DOCUMENTS), 1)
    assert ask(top, 2, ([*BEFORE, *DOCUMENTS[2], *QUESTION], ()), 1) == 10
    assert top.opened[2].cached_tokens == 48 + 32


def test_contexts_in_another_order_and_number_are_found():
    top = bench()
    ask(top, 1, prompt_of(*DOCUMENTS), 1)
    assert ask(top, 2, prompt_of(DOCUMENTS[2], DOCUMENTS[0]), 1) == 10
    assert ask(top, 3, prompt_of(*DOCUMENTS[::-1]), 1) == 10
    assert top.opened[3].cached_tokens == 48 + 3 * 32


def test_a_context_that_occurs_twice_is_computed_once():
    top = bench()
    assert ask(top, 1, prompt_of(DOCUMENTS[0], DOCUMENTS[0], DOCUMENTS[1]), 1) == 48 + 2 * 32 + 10


def test_with_the_cache_off_text_before_a_group_is_computed_once_but_for_its_last_token():
    top = bench(disable_radix_cache=True, page_size=16)
    assert ask(top, 1, prompt_of(*DOCUMENTS), 1) == 48 + 3 * (1 + 32) + 10
    assert ask(top, 2, prompt_of(*DOCUMENTS), 1) == 48 + 3 * (1 + 32) + 10
    assert top.opened[2].cached_tokens == 0


def test_a_single_context_is_text():
    top = bench()
    ids, contexts = prompt_of(DOCUMENTS[0])
    ask(top, 1, (ids, contexts), 1)
    assert ask(top, 2, (ids, ()), 1) == 1


# -- what follows ---------------------------------------------------------------------------------------------------


def test_what_follows_is_found_after_the_same_contexts():
    top = bench()
    ask(top, 1, prompt_of(*DOCUMENTS), 6)
    longer = prompt_of(*DOCUMENTS, question=[*QUESTION, *top.tokens[1][:5], 7, 8])
    assert ask(top, 2, longer, 1) == 2


def test_what_follows_is_not_found_after_anything_else():
    top = bench()
    ids, contexts = prompt_of(*DOCUMENTS)
    ask(top, 1, (ids, contexts), 1)
    assert ask(top, 2, (ids, ()), 1) == 32 + 32 + 10  # as text: only the first context is where it was
    swapped = prompt_of(DOCUMENTS[1], DOCUMENTS[0], DOCUMENTS[2])
    assert ask(top, 3, swapped, 1) == 10
    other_cut = (ids, ((48, 32, 20, 44),))
    assert ask(top, 4, other_cut, 1) == 12 + 32 + 10  # 20 of the second one begin as it did
    assert ask(top, 5, (QUESTION, ()), 1) == 10


def test_a_second_group_begins_from_the_first():
    top = bench()
    ids, contexts = prompt_of(*DOCUMENTS[:2])
    more = text(9, 8), text(10, 12)
    both = [*ids, *more[0], *more[1], 1, 2], (*contexts, (len(ids), 8, 12))
    assert ask(top, 1, both, 1) == 48 + 2 * 32 + 10 + 20 + 2
    swapped = [*ids, *more[1], *more[0], 1, 2], (*contexts, (len(ids), 12, 8))
    assert ask(top, 2, swapped, 1) == 2


def test_samples_of_a_prompt_share_its_contexts():
    top = bench()
    ids, contexts = prompt_of(*DOCUMENTS)
    top.add(1, ids, 4, contexts=contexts, n=3)
    top.run()
    assert {tuple(top.tokens[uid]) for uid in (1, 2, 3)} == {tuple(SeeingModel(ids, contexts).output(4))}
    assert top.runner.computed_tokens <= 48 + 3 * 32 + 3 * 10 + 3 * 3


# -- rows and memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_more_contexts_than_rows(overlap: str):
    top = bench(rows=1, overlap=overlap)
    documents = [text(100 + i, 3) for i in range(3 * PART_ROWS)]
    ask(top, 1, prompt_of(*documents))
    assert top.features.parts.rows.num_taken == 0


def test_parts_do_not_count_as_running_requests():
    top = bench(rows=2, chunked_prefill_size=16)
    ids, contexts = prompt_of(*DOCUMENTS)
    for uid in (1, 2, 3):
        top.add(uid, [uid, *ids], 8, contexts=((49, *contexts[0][1:]),))
    seen = set()
    while len(top.finish) < 3:
        top.turn()
        seen.add((top.reporter.state()["running_requests"], len(top.features.parts.running)))
    assert max(running for running, _ in seen) == 2 and max(parts for _, parts in seen) >= 3


def test_a_prompt_that_cannot_fit_is_refused_with_the_reason():
    top = bench(total=160)
    ids, contexts = prompt_of(*DOCUMENTS)
    top.add(1, ids, 5, contexts=contexts)
    top.run()
    assert top.finish[1].error.status == 400 and "do not fit the 160 tokens of the KV pool" in str(top.finish[1].error)
    fits = len(ids) + 5 + 2 * 4  # two pages for each part
    ask(bench(total=fits), 1, (ids, contexts))


def test_a_lease_of_a_client_gives_way_to_contexts_that_need_the_pool():
    top = bench(total=200)
    top.add(1, text(20, 90), 1, prefix_lease_s=100)
    top.run()
    ask(top, 2, prompt_of(*DOCUMENTS))
    assert top.features.leases.num_revoked == 1


@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize("after", range(1, 8))
def test_a_request_is_retracted_while_its_contexts_are_computed_and_comes_back(after: int, overlap: str):
    top = bench(chunked_prefill_size=32, overlap=overlap)
    ids, contexts = prompt_of(*DOCUMENTS)
    asked = {"logprobs": LogprobSpec(0, 1), "hidden": HiddenMode.ALL}
    top.add(1, ids, 5, contexts=contexts, **asked)
    for _ in range(after):
        top.turn()
    top.add(2, [3, 4], 5)
    top.turn()
    running = top.scheduler.running
    if overlap == "on":
        top.scheduler._steps.apply_in_flight()
    top.scheduler.waiting.add(running.retract(running.get(1)))
    top.run()
    assert top.finish[1].num_retractions == 1
    alone = bench()
    alone.add(1, ids, 5, contexts=contexts, **asked)
    alone.run()
    assert top.tokens[1] == alone.tokens[1] == SeeingModel(ids, contexts).output(5)
    for told, expected in zip((top.scores[1], top.hidden[1]), (alone.scores[1], alone.hidden[1]), strict=True):
        assert repr_of(told.meta()) == repr_of(expected.meta())


def repr_of(lists: Any) -> str:
    from schedules import made

    return repr({name: made(each) for name, each in lists.items()} if isinstance(lists, dict) else made(lists))


@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize("after", range(8))
def test_an_abort_at_any_time_returns_every_slot(after: int, overlap: str):
    top = bench(chunked_prefill_size=32, overlap=overlap, page_size=16)
    ids, contexts = prompt_of(*DOCUMENTS)
    top.add(1, ids, 9, contexts=contexts)
    for _ in range(after):
        top.turn()
    top.abort(1)
    top.run()
    assert top.finish[1].kind is FinishKind.ABORT and top.opened[1].prompt_tokens == len(ids)
    state = top.reporter.state()
    assert state["owned_tokens"] == state["leased_tokens"] == 0
    ask(top, 2, (ids, contexts))


def test_what_others_have_leased_is_not_counted_again():
    top = bench(total=400)  # two prompts with contexts of their own would not fit
    for uid in range(1, 7):
        ids, contexts = prompt_of(*DOCUMENTS, question=[uid] * 4)
        top.add(uid, ids, 20, contexts=contexts)
    most = 0
    while len(top.finish) < 6:
        top.turn()
        most = max(most, len(top.scheduler.running))
    assert most == 6 and top.scheduler.running.num_retractions == 0


# -- the same request twice -----------------------------------------------------------------------------------------


def test_two_that_arrive_together_compute_their_contexts_once():
    top = bench(page_size=16)
    ids, contexts = prompt_of(*DOCUMENTS)
    for uid in (1, 2):
        top.add(uid, ids, 1, contexts=contexts)
    top.run()
    assert top.runner.computed_tokens <= 48 + 3 * 32 + 2 * 10


def test_the_second_of_two_waits_for_the_last_context_of_the_first():
    top = bench(context=1024, total=4096)
    documents = [text(200 + i, 40) for i in range(PART_ROWS + 4)]  # not all at once
    ids, contexts = prompt_of(*documents)
    for uid in (1, 2):
        top.add(uid, ids, 1, contexts=contexts)
    top.run()
    assert top.runner.computed_tokens <= 48 + len(documents) * 40 + 2 * 10


def test_what_a_penalty_counts_of_the_prompt_has_the_contexts():
    top = bench(repetition_penalty_scope="all")
    ids, contexts = prompt_of(*DOCUMENTS)
    top.add(1, ids, 6, contexts=contexts, repetition_penalty=1.2)
    top.run()
    assert not {*top.tokens[1]} & {*ids}


def test_a_program_that_has_begun_does_not_wait_for_what_others_may_add():
    """A new one does: it would take what those that have begun come back for."""

    def opened(first: FollowUp) -> bool:
        top = bench(total=340)
        for uid, program in ((1, "a"), (2, "b")):
            top.add(uid, BEFORE if uid == 1 else text(9, 60), 2, follow_up=FollowUp(program, 0))
            while uid not in top.finish:
                top.turn()
        ids, contexts = prompt_of(*DOCUMENTS)
        top.add(3, ids, 2, contexts=contexts, follow_up=first)
        top.scheduler.receive(block=False)
        top.scheduler.turn()
        return len(top.scheduler.running) > 0

    assert opened(FollowUp("a", 0)) and not opened(FollowUp("c", 0))
