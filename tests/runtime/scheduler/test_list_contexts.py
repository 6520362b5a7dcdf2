"""Parallel contexts on a list of prefixes, where each context copies what it begins with."""

import itertools
from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY
from seeing_runner import LateSeeingRunner, SeeingModel, SeeingRunner

from ramet.ipc.content import Contexts
from ramet.runtime.cache.prefix_list import ListCache
from ramet.runtime.engine.extras import SlotCopy
from ramet.runtime.scheduler.step import Step


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def bench(**options: Any) -> BenchTop:
    settled = {"total": 1024, "context": 512, "rows": 8, "prefix_cache": "list"}
    return BenchTop(**{**settled, "runners": (SeeingRunner, LateSeeingRunner), **options})


def steps_of(top: BenchTop) -> list[Step]:
    """To the end of all requests."""
    steps = []
    while not (top.scheduler.idle and steps):
        top.scheduler.receive(block=False)
        step = top.scheduler.turn()
        steps += [] if step is None else [step]
    top.turn()
    return steps


def prompt_of(before: list[int], documents: list[list[int]], after: list[int]) -> tuple[list[int], Contexts]:
    return [*before, *itertools.chain(*documents), *after], ((len(before), *map(len, documents)),)


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_step_that_only_decodes_makes_the_copies_of_cached_contexts(overlap: str):
    """What follows the contexts found no memory. Before a prompt is computed again, their source may be overwritten."""
    top = bench(total=200, rows=40, overlap=overlap, schedule_conservativeness=0.01)
    documents = [text(2, 12), text(3, 12)]
    ids, contexts = prompt_of([], documents, [1, 2])
    top.add(1, ids, 1, contexts=contexts)
    top.run()
    for uid in range(10, 34):
        top.add(uid, [uid, 7], 30)
    for _ in range(3):
        top.turn()
    ids, contexts = prompt_of([], documents, text(5, 40))
    top.add(2, ids, 5, contexts=contexts)
    decodes = [step.batch for step in steps_of(top) if not len(step.prefills)]
    assert any(isinstance(command, SlotCopy) for batch in decodes for command in batch.before)
    assert top.tokens[2] == SeeingModel(ids, contexts).output(5)
    assert all(top.tokens[uid] == SeeingModel([uid, 7], ()).output(30) for uid in range(10, 34))


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_prompt_is_refused_where_the_copies_of_its_contexts_do_not_fit(page_size: int):
    ids, contexts = prompt_of(text(1, 192), [text(seed, 32) for seed in range(2, 10)], text(99, 10))
    needed = len(ids) + 5 + 8 * 192 + 2 * page_size * 9  # each context copies the text before its group
    top = bench(total=-(-needed // page_size) * page_size, page_size=page_size)
    top.add(1, ids, 5, contexts=contexts)
    top.run()
    assert top.tokens[1] == SeeingModel(ids, contexts).output(5)
    short = bench(total=(needed - 1) // page_size * page_size, page_size=page_size)
    short.add(1, ids, 5, contexts=contexts)
    short.run()
    assert short.finish[1].error.status == 400
    assert f"and {needed - len(ids) - 5} for its contexts, do not fit" in str(short.finish[1].error)


def test_what_others_have_leased_is_counted_where_it_is_copied():
    """Two that share everything need twice the memory: the second waits, and nobody is retracted."""
    ids, contexts = prompt_of(text(1, 40), [text(seed, 20) for seed in range(2, 6)], text(99, 10))
    top = bench(total=700)
    for uid in (1, 2):
        top.add(uid, ids, 30, contexts=contexts)
    top.run()
    assert top.scheduler.running.num_retractions == 0
    assert top.tokens[1] == top.tokens[2] == SeeingModel(ids, contexts).output(30)


def test_a_request_that_does_not_fit_alone_ends_and_the_server_goes_on(monkeypatch: pytest.MonkeyPatch):
    """Only a wrong count can lead to this: here it is not known that a list copies."""
    monkeypatch.setattr(ListCache, "copies", False)
    top = bench(total=800)
    ids, contexts = prompt_of(text(1, 200), [text(seed, 20) for seed in range(2, 10)], text(99, 10))
    top.add(1, ids, 5, contexts=contexts)
    top.add(2, [1, 2, 3], 5)
    top.run()
    assert top.finish[1].error.status == 500 and "does not fit" in str(top.finish[1].error)
    assert top.tokens[2] == SeeingModel([1, 2, 3], ()).output(5)
