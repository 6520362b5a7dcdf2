"""Prompts with pictures and films, at random: every output is what texts and features imply, and nothing is lost.

The model is `expected_output` of what is read, features in the place of placeholders; see tests/fakes/seen_media.py.
"""

from typing import Any

import pytest
from bench_top import BenchTop
from hash_runner import expected_output
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from seen_media import SeenMedia, laid_out, piece, runners_with

from ramet.ipc.media import MediaKind
from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import LogprobSpec

PIECES = [
    piece(1, 1), piece(2, 5), piece(3, 5), piece(4, 12), piece(5, 3, 4), piece(6, 9, kind=MediaKind.VIDEO),
    piece(7, 3, 3, 3, kind=MediaKind.VIDEO), piece(8, 4, broken=True),
]  # fmt: skip
TEXT = st.integers(0, 60)
ARRIVAL = st.fixed_dictionaries(
    {
        "shared": st.integers(0, 20),
        "parts": st.lists(TEXT | st.sampled_from(PIECES), min_size=1, max_size=8),
        "num_new": st.integers(0, 30),
        "n": st.sampled_from([1, 1, 2]),
        "turns_before": st.integers(0, 3),
        "abort_after": st.none() | st.integers(0, 20),
        "again": st.booleans(),  # the prompt of the request before
        "logprobs": st.booleans(),
        "priority": st.sampled_from([0, 0, 1]),
    }
)


@pytest.mark.timeout(1800)
@examples(60, 3000)
@given(
    arrivals=st.lists(ARRIVAL, min_size=1, max_size=10),
    page_size=st.sampled_from([1, 16]),
    chunk=st.sampled_from([1, 7, 64, -1]),
    total=st.sampled_from([128, 192, 1024]),
    rows=st.integers(1, 6),
    policy=st.sampled_from(["lpm", "dfs-weight", "fcfs"]),
    cache=st.sampled_from(["tree", "tree", "list", "off"]),
    overlap=st.sampled_from(["on", "off"]),
    room=st.sampled_from([0, 1, 100]),
    most=st.sampled_from([1, 10, 4096]),
    is_whole=st.booleans(),
)
def test_every_output_is_what_texts_and_features_imply(
    arrivals: list[dict[str, Any]], room: int, most: int, is_whole: bool, cache: str, total: int, rows: int,
    policy: str, page_size: int, chunk: int, overlap: str,
) -> None:  # fmt: skip
    media = SeenMedia(room, is_whole)
    top = BenchTop(
        total=total, rows=rows, context=128, page_size=page_size, chunked_prefill_size=chunk, schedule_policy=policy,
        schedule_conservativeness=0.01, disable_radix_cache=cache == "off", overlap=overlap,
        prefix_cache="list" if cache == "list" else "tree", runners=runners_with(media),
        max_vision_tokens_per_step=most,
    )  # fmt: skip
    reads: dict[int, list[int]] = {}
    prompts: dict[int, list[int]] = {}
    asked: dict[int, dict[str, Any]] = {}
    aborts: dict[int, list[int]] = {}
    turn, uid, parts = 0, 1, list[Any]()
    for arrival in arrivals:
        for _ in range(arrival["turns_before"]):
            turn = one_turn(top, turn, aborts)
        if not (arrival["again"] and parts):
            parts = [*range(30, 30 + arrival["shared"]), *arrival["parts"]]
        ids, placed, read = laid_out(parts)
        more: dict[str, Any] = {"logprobs": LogprobSpec(start=0)} if arrival["logprobs"] else {}
        more["priority"] = arrival["priority"]
        top.add(uid, ids, arrival["num_new"], n=arrival["n"], media=placed, **more)
        for sample in range(arrival["n"]):
            prompts[uid] = ids
            reads[uid], asked[uid] = read, {**arrival, "broken": any(p.item.file == "broken" for p in placed)}
            if arrival["abort_after"] is not None:
                aborts.setdefault(turn + arrival["abort_after"], []).append(uid)
            uid += 1
            del sample
    for _ in range(20_000):
        turn = one_turn(top, turn, aborts)
        if top.scheduler.idle:
            break
    assert set(top.finish) == set(reads)
    for uid, read in reads.items():
        whole, finish = expected_output(read, asked[uid]["num_new"]), top.finish[uid]
        if finish.kind is FinishKind.ABORT:
            assert top.tokens[uid] == whole[: len(top.tokens[uid])]
            assert asked[uid]["broken"] or asked[uid]["abort_after"] is not None or "fit" in str(finish.error), finish
        else:
            assert top.tokens[uid] == whole and not asked[uid]["broken"]
    for uid, scores in top.scores.items():
        if top.finish[uid].kind is not FinishKind.ABORT:
            assert [token for _, token, _ in scores.meta()["input_token_logprobs"]] == prompts[uid]
    if room == 100:
        assert all(media.computed[each.key] <= 1 for each in PIECES if each.file != "broken")
    assert media.max_tokens <= max(most, max(each.num_tokens for each in PIECES))
    top.clock.advance(100)
    top.turn()
    state = top.reporter.state()
    assert state["leased_tokens"] == state["owned_tokens"] == 0
    assert state["free_tokens"] + state["cached_tokens_in_tree"] == total


def one_turn(top: BenchTop, turn: int, aborts: dict[int, list[int]]) -> int:
    for uid in aborts.pop(turn, ()):
        top.abort(uid)
    top.turn()
    top.clock.advance(0.1)
    return turn + 1


def test_what_towers_computed_and_what_was_found_is_counted() -> None:
    media, first, second = SeenMedia(room=100), piece(1, 5), piece(2, 4)
    top = BenchTop(total=256, rows=4, context=128, runners=runners_with(media))
    for uid, parts in enumerate(([first], [first, first, second], [second]), start=1):
        ids, placed, _ = laid_out([uid, *parts, 7])
        top.add(uid, ids, 2, media=placed)
        top.run()
    state = top.reporter.state()
    assert (state["tower_tokens"], state["found_media"]) == (9, 2), "the first is found once, the second once"
    assert state["media_cache_bytes"] == media.num_bytes == 9 * 4
