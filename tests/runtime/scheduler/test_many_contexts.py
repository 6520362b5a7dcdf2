"""Prompts with very many contexts: what a turn does for them is bounded, and for samples it is done once."""

from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from effort import num_calls
from hash_runner import VOCABULARY, HashRunner
from seeing_runner import LateSeeingRunner, SeeingModel, SeeingRunner

from ramet.ipc.content import Contexts
from ramet.runtime.cache.prefix import PageAllocator, PrefixCache
from ramet.runtime.scheduler.features import assembler, context_requests
from ramet.runtime.scheduler.features.context_requests import ParallelContexts
from ramet.runtime.scheduler.features.contexts import FirstGroup, RequestContexts, groups_of
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.unpublished import UnpublishedPrefixes
from tests.fakes.specs import make_spec


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def prompt_of(num: int, length: int, before: int = 20, seed: int = 1) -> tuple[list[int], Contexts]:
    """With so many contexts."""
    return text(seed, before + num * length + 3), ((before, *[length] * num),)


def bench(**options: Any) -> BenchTop:
    settled = {"total": 2048, "context": 1024, "rows": 32, "runners": (SeeingRunner, LateSeeingRunner)}
    return BenchTop(**{**settled, **options})


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_turn_begins_so_many_cached_contexts_at_most(overlap: str, monkeypatch: pytest.MonkeyPatch):
    top = bench(overlap=overlap)
    ids, contexts = prompt_of(30, 4)
    top.add(1, ids, 1, contexts=contexts)
    top.run()
    computed = top.runner.computed_tokens
    monkeypatch.setattr(assembler, "MAX_BEGUN", 8)
    top.add(2, ids, 3, contexts=contexts)
    for _ in range(4):  # the text before them and the contexts are 31 parts
        top.turn()
        assert top.runner.computed_tokens == computed
    top.run()
    assert top.tokens[2] == SeeingModel(ids, contexts).output(3) and top.finish[2].num_retractions == 0


def test_samples_wait_for_short_contexts_that_together_are_worth_it():
    top = bench()
    ids, contexts = prompt_of(40, 2)
    top.add(1, ids, 1, contexts=contexts, n=4)
    top.run()
    assert top.runner.computed_tokens <= 20 + 40 * 2 + 4 * 3


def test_a_turn_looks_up_so_many_contexts_at_most(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(context_requests, "MAX_LOOKED_UP", 8)
    top = bench()
    prompts = {uid: prompt_of(6, 4, seed=uid) for uid in range(1, 5)}
    for uid, (ids, contexts) in prompts.items():
        top.add(uid, ids, 3, contexts=contexts)
    top.turn()
    assert len(top.scheduler.running) == 2
    assert "looks up its 6 contexts" in str(top.scheduler.where(3))
    top.run()
    assert all(top.tokens[uid] == SeeingModel(*prompts[uid]).output(3) for uid in prompts)


def test_a_turn_is_short_whatever_samples_of_a_thousand_contexts_wait():
    """105,000 calls at most, for 256 parts that begin; two million where each sample looked up its contexts."""
    top = BenchTop(total=200_000, context=4096, deep_checks=False, check_invariants=False)
    ids, contexts = prompt_of(1000, 2, before=1500)
    top.add(1, ids, 1, contexts=contexts, n=16)
    longest = 0
    while len(top.finish) < 16:
        longest = max(longest, num_calls(top.turn))
    assert longest < 200_000


# -- what is announced ----------------------------------------------------------------------------------------------


def request_of(uid: int, prompt: tuple[list[int], Contexts], page_size: int) -> Request:
    ids, groups = np.array(prompt[0], dtype=np.int32), groups_of(prompt[1])
    request = Request(uid, ids, make_spec(), seed=0)
    if groups:
        request.own[RequestContexts] = RequestContexts(groups, FirstGroup.of(ids, groups, page_size))
        request.asked = (ParallelContexts(HashRunner(64, 4, 64), PrefixCache(PageAllocator(64, page_size))),)
    return request


def first_of(request: Request) -> FirstGroup:
    return request.own[RequestContexts].first


def gain(unpublished: UnpublishedPrefixes, request: Request, cached: int = 0) -> int:
    first = first_of(request)
    return context_requests.worth_waiting(unpublished, first, (), [cached] * len(first.contexts))


@pytest.mark.parametrize("page_size", [1, 16])
def test_prompts_that_begin_with_the_same_contexts_are_announced_as_one(page_size: int):
    unpublished, prompt = UnpublishedPrefixes(page_size), prompt_of(3, 32)
    first, second, other = (request_of(uid, prompt, page_size) for uid in (1, 2, 3))
    assert not unpublished.has(first_of(first).key)
    unpublished.keep_only([(first, ()), (second, ())])
    assert unpublished.has(first_of(other).key)
    whole = 20 + 3 * 32 if page_size == 1 else 16 + 3 * 32
    assert gain(unpublished, other) == whole and gain(unpublished, other, 16) == whole - 16
    unpublished.keep_only([(second, ())])
    assert gain(unpublished, other) == whole
    unpublished.keep_only([])
    assert gain(unpublished, other) == 0 and not unpublished.has(first_of(other).key)


def test_contexts_are_announced_to_prompts_without_them():
    unpublished, (ids, contexts) = UnpublishedPrefixes(1), prompt_of(3, 40)
    unpublished.keep_only([(request_of(1, (ids, contexts), 1), ())])
    alone = np.array([*ids[:20], *ids[60:100], 5], dtype=np.int32)
    assert unpublished.worth_waiting(alone, (), 0) == 60
