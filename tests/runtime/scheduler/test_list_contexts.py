"""Parallel contexts on a list of prefixes, where each context copies what it begins with."""

from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY
from seeing_runner import LateSeeingRunner, SeeingModel, SeeingRunner

from ramet.ipc.messages import Contexts


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def bench(**options: Any) -> BenchTop:
    settled = {"total": 1024, "context": 512, "rows": 8, "prefix_cache": "list"}
    return BenchTop(**{**settled, "runners": (SeeingRunner, LateSeeingRunner), **options})


def prompt_of(before: list[int], documents: list[list[int]], after: list[int]) -> tuple[list[int], Contexts]:
    return [*before, *sum(documents, []), *after], ((len(before), *map(len, documents)),)


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_copies_of_cached_contexts_are_made_before_anything_is_written(overlap: str):
    """Contexts are cached whole and what follows them finds no memory: the next step decodes others and computes no prompt."""
    top = bench(total=171, context=300, overlap=overlap, schedule_conservativeness=0.01)
    documents = [text(seed, 12) for seed in (2, 3, 4, 5)]
    arrivals = [
        (prompt_of([], [documents[i] for i in (2, 3, 1, 2)], text(51, 3)), 40, 2),
        (prompt_of([], [documents[i] for i in (0, 2, 3)], text(50, 30)), 40, 7),
        ((text(61, 3), ()), 110, 7),
        ((text(61, 20), ()), 80, 1),
    ]
    for uid, ((ids, contexts), num_new, turns) in enumerate(arrivals, 1):
        top.add(uid, ids, num_new, contexts=contexts)
        for _ in range(turns):
            top.turn()
    top.run()
    for uid, ((ids, contexts), num_new, _) in enumerate(arrivals, 1):
        assert top.tokens[uid] == SeeingModel(ids, contexts).output(num_new)
