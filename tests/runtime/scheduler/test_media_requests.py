"""Requests with pictures: what they share, when towers run, and what becomes of a picture that cannot be computed."""

from typing import Any

import msgspec
import pytest
from bench_top import BenchTop
from hash_runner import expected_output
from msgspec.structs import replace
from seen_media import Prompt, SeenMedia, laid_out, piece, runners_with

from ramet.ipc.control import ReadNode, Watch
from ramet.ipc.live import LiveState, NodeTokens
from ramet.ipc.media import MediaKind
from ramet.ipc.messages import FinishKind
from ramet.runtime.scheduler.features.media import MediaNumbers

BEFORE, AFTER = list(range(20)), list(range(30, 40))
CAT, DOG, FILM = piece(1, 8), piece(2, 8), piece(3, 4, 4, kind=MediaKind.VIDEO)


def bench_top(media: SeenMedia, **options: Any) -> BenchTop:
    return BenchTop(runners=runners_with(media), **options)


@pytest.fixture
def media() -> SeenMedia:
    return SeenMedia(room=100)


@pytest.fixture
def top(media: SeenMedia) -> BenchTop:
    return bench_top(media)


def add(top: BenchTop, uid: int, prompt: Prompt, num_new: int = 3, **more: Any) -> list[int]:
    """What must come."""
    ids, placed, read = laid_out(prompt)
    top.add(uid, ids, num_new, media=placed, **more)
    return expected_output(read, num_new)


def cached(top: BenchTop, uid: int, prompt: Prompt) -> int:
    """Tokens of it that were cached, when it has run."""
    expected = add(top, uid, prompt)
    top.run()
    assert top.tokens[uid] == expected
    return top.opened[uid].cached_tokens


def test_text_a_picture_and_what_follows_are_shared_with_who_has_the_same(top: BenchTop, media: SeenMedia) -> None:
    assert cached(top, 1, [*BEFORE, CAT, *AFTER, 1]) == 0
    assert cached(top, 2, [*BEFORE, CAT, *AFTER, 2]) == len(BEFORE) + 8 + len(AFTER)
    assert cached(top, 3, [*BEFORE, CAT, 3]) == len(BEFORE) + 8
    assert media.computed[CAT.key] == 1


def test_another_picture_of_the_same_size_shares_nothing_after_it(top: BenchTop) -> None:
    cached(top, 1, [*BEFORE, CAT, *AFTER])
    assert cached(top, 2, [*BEFORE, DOG, *AFTER]) == len(BEFORE)
    assert cached(top, 3, [*BEFORE, FILM, *AFTER]) == len(BEFORE)
    assert cached(top, 4, [*BEFORE, *[90] * 8, *AFTER]) == len(BEFORE)  # its tokens without it


def test_the_second_of_two_pictures_is_known_behind_the_first_alone(top: BenchTop, media: SeenMedia) -> None:
    cached(top, 1, [CAT, DOG, *AFTER])
    assert cached(top, 2, [CAT, CAT, *AFTER]) == 8
    assert cached(top, 3, [DOG, CAT, *AFTER]) == 0
    assert media.computed == {CAT.key: 1, DOG.key: 1}


def test_a_cached_prompt_needs_no_tower() -> None:
    media = SeenMedia(room=0)
    top = bench_top(media)
    cached(top, 1, [*BEFORE, CAT, *AFTER])
    assert cached(top, 2, [*BEFORE, CAT, *AFTER, 5]) == len(BEFORE) + 8 + len(AFTER)
    assert media.computed == {CAT.key: 1}
    top.scheduler.control.flush()
    assert cached(top, 3, [*BEFORE, CAT, *AFTER]) == 0
    assert media.computed == {CAT.key: 2}


def test_features_outlive_what_was_cached(top: BenchTop, media: SeenMedia) -> None:
    cached(top, 1, [*BEFORE, CAT, *AFTER])
    top.scheduler.control.flush()
    assert cached(top, 2, [CAT, *AFTER]) == 0
    assert media.computed == {CAT.key: 1}


def test_a_turn_computes_so_many_tokens_at_most(media: SeenMedia) -> None:
    top = bench_top(media, max_vision_tokens_per_step=20)
    pieces = [piece(100 + i, 8) for i in range(5)]
    expected = {uid: add(top, uid, [each, *AFTER]) for uid, each in enumerate(pieces, 1)}
    top.run()
    assert top.tokens == expected and media.max_tokens == 16


def test_a_piece_larger_than_that_goes_alone(media: SeenMedia) -> None:
    top = bench_top(media, max_vision_tokens_per_step=5)
    expected = add(top, 1, [CAT, DOG, *AFTER])
    top.run()
    assert top.tokens[1] == expected and media.max_tokens == 8


def test_texts_run_while_a_picture_is_waited_for(top: BenchTop) -> None:
    add(top, 1, [CAT, *AFTER])
    add(top, 2, BEFORE)
    top.turn()
    assert {each.request.uid for each in top.scheduler.running} == {2}
    assert "8 tokens of its media" in str(top.scheduler.where(1))
    top.run()


def test_a_picture_that_cannot_be_computed_ends_its_requests_alone(top: BenchTop) -> None:
    broken = piece(9, 8, broken=True)
    add(top, 1, [broken, *AFTER])
    expected = add(top, 2, [CAT, *AFTER])
    add(top, 3, [CAT, broken], n=2)
    top.run()
    assert top.tokens[2] == expected
    for uid in (1, 3, 4):
        finish = top.finish[uid]
        assert finish.kind is FinishKind.ABORT and (finish.error.status, finish.error.place) == (500, "image_data[0]")
        assert str(finish.error) == "image_data[0] could not be computed: it is broken"


def test_what_a_client_computed_is_its_own_fault(top: BenchTop) -> None:
    add(top, 1, [replace(piece(9, 8, broken=True), is_given=True), *AFTER])
    top.run()
    assert top.finish[1].error.status == 400


def test_a_picture_whose_file_is_gone_harms_nobody_who_sent_the_same(top: BenchTop, media: SeenMedia) -> None:
    gone = replace(CAT, file="broken")
    add(top, 1, [gone, *AFTER])
    expected = add(top, 2, [CAT, *AFTER])
    top.run()
    assert top.finish[1].kind is FinishKind.ABORT and top.tokens[2] == expected
    assert media.computed[CAT.key] == 2


def test_numbers_that_are_given_out_again_share_nothing(top: BenchTop) -> None:
    top.features.towers.numbers = MediaNumbers(SeenMedia.tokens, last=3)
    assert cached(top, 1, [*BEFORE, CAT, *AFTER]) == 0
    assert cached(top, 2, [*BEFORE, DOG, *AFTER]) == len(BEFORE)
    assert cached(top, 3, [*BEFORE, piece(4, 8), *AFTER]) == 0  # its number was the cat's
    assert cached(top, 4, [*BEFORE, piece(4, 8), *AFTER]) == len(BEFORE) + 8 + len(AFTER) - 1


def test_samples_share_a_picture(top: BenchTop, media: SeenMedia) -> None:
    expected = add(top, 1, [*BEFORE, CAT], n=3)
    top.run()
    assert [top.tokens[uid] for uid in (1, 2, 3)] == [expected] * 3
    assert media.computed == {CAT.key: 1}


@pytest.mark.parametrize("chunk", [1, 3, 5, 9])
def test_no_step_ends_inside_a_picture_whose_tokens_see_each_other(chunk: int) -> None:
    top = bench_top(SeenMedia(room=100, is_whole=True), chunked_prefill_size=chunk)
    prompts = {uid: add(top, uid, [*BEFORE[:uid], CAT, 5, FILM, *AFTER]) for uid in range(1, 6)}
    top.run()
    assert top.tokens == prompts


def test_the_page_is_told_a_pictures_own_token(top: BenchTop) -> None:
    cached(top, 1, [CAT, 5, FILM])
    top.control(Watch, begins=True)
    top.turn()
    row, *_ = msgspec.json.decode(top.replies[-1].body, type=LiveState).tree.nodes
    top.control(ReadNode, node=row.id)
    top.turn()
    told = msgspec.json.decode(top.replies[-1].body, type=NodeTokens)
    assert told.ids[: 8 + 1 + 9] == [*[90] * 8, 5, *[91] * 4, 89, *[91] * 4]
