"""Experts are returned of every token that was read, whenever it was computed. Here a token's one expert is its id."""

import io
from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import expected_output

from ramet.ipc.messages import RouteLayout
from ramet.ipc.spec import ExpertRoutes
from ramet.runtime.scheduler.features.routes import packed


def prompt_of(which: int, length: int) -> list[int]:
    return [(which * 31 + i * 7) % 97 for i in range(length)]


def tokens_in(top: BenchTop, uid: int) -> list[int]:
    """The second of three layers has experts, the others zeros."""
    routes = np.frombuffer(top.routes[uid], np.int32).reshape(-1, 3, 1)
    assert not routes[:, [0, 2]].any()
    return routes[:, 1, 0].tolist()


@pytest.mark.parametrize("cache", [{}, {"prefix_cache": "list"}, {"disable_radix_cache": True}])
@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize(("page", "chunk"), [(1, 7), (16, 5), (1, -1)])
def test_of_every_token_but_the_last_over_chunks_prefixes_and_retractions(
    page: int, chunk: int, overlap: str, cache: dict[str, Any]
) -> None:
    options: dict[str, Any] = dict(chunked_prefill_size=chunk, page_size=page, schedule_conservativeness=0.01, **cache)
    top = BenchTop(total=160, overlap=overlap, **options)
    prompts = {uid: prompt_of(uid % 3, 20 + uid) for uid in range(1, 10)}
    for uid, prompt in prompts.items():
        top.add(uid, prompt, 30, expert_routes=ExpertRoutes(uid % 4 * 7) if uid % 5 else None)
    top.run()
    assert sum(finish.num_retractions for finish in top.finish.values()) > 0
    for uid, prompt in prompts.items():
        whole = prompt + top.tokens[uid]
        assert top.tokens[uid] == expected_output(prompt, 30)
        assert uid not in top.routes if uid % 5 == 0 else tokens_in(top, uid) == whole[uid % 4 * 7 : -1]


def test_of_each_sample() -> None:
    top, prompt = BenchTop(), prompt_of(0, 12)
    top.add(1, prompt, 8, n=3, temperature=0.8, expert_routes=ExpertRoutes())
    top.run()
    for uid in (1, 2, 3):
        assert tokens_in(top, uid) == (prompt + top.tokens[uid])[:-1]


def test_of_an_aborted_request_those_that_were_computed() -> None:
    top = BenchTop(chunked_prefill_size=8)
    for uid in (1, 2):
        top.add(uid, prompt_of(uid, 40), 9, expert_routes=ExpertRoutes())
    top.turn()
    top.turn()
    top.abort(1, 2)
    top.run()
    assert tokens_in(top, 1) == prompt_of(1, 40)[:16] and tokens_in(top, 2) == []


@pytest.mark.parametrize(("experts", "kind"), [(256, np.uint8), (257, np.uint16)])
def test_the_compact_form_is_a_file_of_the_smallest_type_without_dense_layers(experts: int, kind: type) -> None:
    layout, routes = RouteLayout(4, (1, 3), 2, experts), np.arange(12, dtype=np.int32).reshape(3, 2, 2)
    routes[0, 0, 0] = experts - 1
    read = np.load(io.BytesIO(packed(routes, layout, ExpertRoutes(compact=True))), allow_pickle=False)
    assert read.dtype == kind
    np.testing.assert_array_equal(read, routes)
    whole = np.frombuffer(packed(routes, layout, ExpertRoutes()), np.int32).reshape(3, 4, 2)
    np.testing.assert_array_equal(whole[:, [1, 3]], routes)
    assert not whole[:, [0, 2]].any()
