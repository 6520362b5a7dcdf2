"""--max-itl-ms on a clock that steps move: what is planned keeps the bound, and every request ends as without it."""

from collections.abc import Sequence
from typing import Any

from bench_top import BenchTop
from delayed_runner import DelayedRunner
from hash_runner import HashRunner, expected_output
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from seen_media import SeenMedia, laid_out, piece, runners_with

from ramet.ipc.media import MediaKind, Prepared
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import Features
from ramet.runtime.engine.step_cost import StepCost, StepLoad
from ramet.runtime.scheduler.features.pace import HEADROOM, MIN_TOKENS

COST = StepCost(((1, 0.008), (8, 0.009), (64, 0.060), (512, 0.400)), draw_s=0.0002, read_s=1e-5, pair_s=2e-6)


class _Timed:
    """Notes what each step computes; `cost` is what it says of itself."""

    cost = COST

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.batches: list[Batch] = []

    def launch(self, batch: Batch) -> Any:
        self.batches.append(batch)
        return super().launch(batch)  # type: ignore[misc]


class TimedHash(_Timed, HashRunner):
    pass


class TimedDelayed(_Timed, DelayedRunner):
    pass


class TimedMedia(SeenMedia):
    """Each token of a piece takes `token_s`. Notes what is computed while how many requests wait for a token."""

    def __init__(self, token_s: float) -> None:
        super().__init__(room=1000)
        self.token_s = token_s
        self.top: PacedTop | None = None
        self.calls: list[tuple[int, Sequence[Prepared]]] = []

    def compute(self, items: Sequence[Prepared]) -> list[Features | str]:
        assert self.top is not None
        self.calls.append((self.top.scheduler.running.num_in_output, items))
        self.top.clock.advance(self.seconds(items))
        return super().compute(items)

    def seconds(self, items: Sequence[Prepared]) -> float:
        return self.token_s * sum(item.num_tokens for item in items)


class PacedTop(BenchTop):
    """A step takes what `COST` says, times what the test says of each one."""

    def __init__(self, slowness: list[float], media: TimedMedia | None = None, **options: Any) -> None:
        kinds = TimedHash, TimedDelayed
        runners = kinds if media is None else runners_with(media, kinds)
        super().__init__(runners=runners, deep_checks=False, **options)
        self._slowness, self._known = slowness, 0
        if media is not None:
            media.top = self

    def turn(self) -> None:
        compute = self.runner.compute

        def timed(batch: Batch) -> None:
            self.clock.advance(COST.seconds(batch.load) * self._slowness[self._known % len(self._slowness)])
            self._known += 1
            compute(batch)

        self.runner.compute = timed  # type: ignore[method-assign]
        super().turn()
        self.runner.compute = compute  # type: ignore[method-assign]


def prefill_tokens(batch: Batch) -> int:
    return int(batch.num_new.sum()) - batch.num_decode


requests = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 12), st.integers(0, 6)), min_size=2, max_size=10)


@given(requests, st.sampled_from([5.0, 20.0, 40.0, 150.0]), st.sampled_from(["off", "on"]), st.sampled_from([1, 16]))
@examples(25, 400)
def test_a_step_beside_running_requests_keeps_the_bound_and_all_end_as_without_it(
    asked: list[tuple[int, int, int]], max_itl_ms: float, overlap: str, page_size: int
) -> None:
    top = PacedTop([1.0], max_itl_ms=max_itl_ms, overlap=overlap, page_size=page_size)
    prompts = {uid: [(7 * i + uid % 3) % 90 for i in range(length)] for uid, (length, _, _) in enumerate(asked, 1)}
    coming = sorted((turn, uid, num_new) for uid, (_, num_new, turn) in enumerate(asked, 1))
    turn = 0
    while coming or not top.scheduler.idle:
        while coming and coming[0][0] <= turn:
            _, uid, num_new = coming.pop(0)
            top.add(uid, prompts[uid], num_new)
        in_output = top.scheduler.running.num_in_output
        before = len(top.runner.batches)  # type: ignore[attr-defined]
        top.turn()
        turn += 1
        assert turn < 2000, "somebody starves"
        for batch in top.runner.batches[before:]:  # type: ignore[attr-defined]
            if in_output and prefill_tokens(batch) > MIN_TOKENS:
                assert COST.seconds(batch.load) <= max_itl_ms / 1e3 * HEADROOM * 1.001
            if in_output and batch.num_decode == 0:
                assert prefill_tokens(batch) > 0
    for uid, (_, num_new, _) in enumerate(asked, 1):
        assert top.tokens[uid] == expected_output(prompts[uid], num_new)


@given(st.lists(st.sampled_from([0.5, 1.0, 1.0, 1.0, 1.0, 6.0]), min_size=3, max_size=9))
@examples(10, 100)
def test_a_disturbed_machine_slows_prompts_and_stops_none(slowness: list[float]) -> None:
    top = PacedTop(slowness, max_itl_ms=40)
    for uid in (1, 2, 3):
        top.add(uid, [uid, uid + 1], 300)
    top.turn()
    top.add(4, list(range(90)) * 5, 3)
    for _ in range(450 // MIN_TOKENS + 6):
        top.turn()
    assert len(top.tokens[4]) == 3


def test_prompts_get_the_least_where_decoding_alone_is_too_long() -> None:
    top = PacedTop([1.0], max_itl_ms=1)
    top.add(1, [1, 2], 100)
    top.turn()
    top.add(2, list(range(80)), 2)
    top.turn()
    assert prefill_tokens(top.runner.batches[-1]) == MIN_TOKENS  # type: ignore[attr-defined]


def test_without_running_requests_a_prompt_is_computed_by_whole_chunks() -> None:
    top = PacedTop([1.0], max_itl_ms=10)
    top.add(1, [i % 90 for i in range(500)], 2)
    top.turn()
    assert prefill_tokens(top.runner.batches[0]) == 500  # type: ignore[attr-defined]


def test_so_many_run_as_keep_the_bound_and_the_others_hear_why_they_wait() -> None:
    top = PacedTop([1.0], max_itl_ms=40)
    for uid in range(1, 60):
        top.add(uid, [uid, uid + 1, uid + 2], 20)
    top.turn()
    running = len(top.scheduler.running)
    load = StepLoad(running, running, 4 * running) + StepLoad(MIN_TOKENS)
    assert COST.seconds(load) <= 0.040 * HEADROOM < COST.seconds(load + StepLoad(1, 1, 4))
    waits = top.scheduler.where(59)
    assert waits is not None and "--max-itl-ms 40" in str(waits["reason"])
    top.run()
    assert len(top.finish) == 59


def test_steps_that_only_decode_say_nothing_of_steps_with_prompts() -> None:
    """Those are replayed on a CPU, so they are faster than the curve that both begin with."""
    top = PacedTop([1.0] + [0.5] * 400, max_itl_ms=60)
    for uid in range(1, 9):
        top.add(uid, [uid, uid + 1], 300)
    for _ in range(200):
        top.turn()
    top.add(20, [i % 90 for i in range(400)], 3)
    top.turn()
    load = top.runner.batches[-1].load  # type: ignore[attr-defined]
    assert load.pairs and COST.seconds(load) <= 0.060 * HEADROOM * 1.001


def add_pieces(top: PacedTop, uid: int, num: int, size: int, kind: MediaKind = MediaKind.IMAGE) -> list[int]:
    """Of so many tokens each, in a prompt of their own. Returns what must come."""
    ids, placed, read = laid_out([uid % 80, *(piece(1000 * uid + i, size, kind=kind) for i in range(num)), 7])
    top.add(uid, ids, 3, media=placed)
    return expected_output(read, 3)


def of_turns(top: PacedTop, media: TimedMedia, num: int) -> list[int]:
    """How many pieces each of the next turns computes."""
    found = []
    for _ in range(num):
        before = len(media.calls)
        top.turn()
        found.append(sum(len(items) for _, items in media.calls[before:]))
    return found


pieces = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 30), st.sampled_from([MediaKind.IMAGE, MediaKind.VIDEO])),
    min_size=1, max_size=5,
)  # fmt: skip


@given(requests, pieces, st.sampled_from([5.0, 40.0, 150.0]), st.sampled_from([1e-4, 1e-3, 5e-3]), st.booleans())
@examples(25, 400)
def test_pieces_beside_running_requests_keep_the_bound_too(
    asked: list[tuple[int, int, int]], media_of: list[tuple[int, int, MediaKind]], max_itl_ms: float, token_s: float,
    overlapped: bool,
) -> None:  # fmt: skip
    media, bound_s = TimedMedia(token_s), max_itl_ms / 1e3 * HEADROOM * 1.001
    top = PacedTop([1.0], media, max_itl_ms=max_itl_ms, overlap="on" if overlapped else "off")
    expected = dict[int, list[int]]()
    for uid, (length, num_new, _) in enumerate(asked, 1):
        prompt = [(7 * i + uid % 3) % 90 for i in range(length)]
        top.add(uid, prompt, num_new)
        expected[uid] = expected_output(prompt, num_new)
    for uid, (num, size, kind) in enumerate(media_of, 100):
        expected[uid] = add_pieces(top, uid, num, size, kind)
    batches, rested = top.runner.batches, True  # type: ignore[attr-defined]
    for _ in range(4000):
        num_calls, num_batches = len(media.calls), len(batches)
        top.turn()
        calls = media.calls[num_calls:]
        items = [item for _, each in calls for item in each]
        spent_s = media.seconds(items)
        if calls and calls[0][0]:
            assert rested
            assert len(items) == 1 or spent_s + COST.seconds(StepLoad(MIN_TOKENS)) <= bound_s
            for batch in batches[num_batches:]:
                if prefill_tokens(batch) > MIN_TOKENS:
                    assert spent_s + COST.seconds(batch.load) <= bound_s
        rested = not calls
        if top.scheduler.idle:
            break
    assert top.tokens == {uid: tokens for uid, tokens in expected.items() if tokens}


def test_a_turn_computes_as_many_pieces_as_fit_beside_a_step_once_it_is_known_what_one_takes() -> None:
    media = TimedMedia(0.001)
    top = PacedTop([1.0], media, max_itl_ms=60)
    top.add(1, [1, 2], 100)
    top.turn()
    expected = add_pieces(top, 2, 6, size=8)
    room_s = 0.060 * HEADROOM - COST.seconds(StepLoad(1, 1, 4) + StepLoad(MIN_TOKENS))
    assert 4 * 0.008 < room_s < 5 * 0.008
    assert of_turns(top, media, 6) == [0, 1, 0, 4, 0, 1]
    assert len(top.tokens[1]) == 7
    top.run()
    assert top.tokens[2] == expected


def test_pieces_that_fit_beside_no_step_are_computed_one_by_one_with_a_step_in_between() -> None:
    media = TimedMedia(0.1)
    top = PacedTop([1.0], media, max_itl_ms=5)
    top.add(1, [1, 2], 100)
    top.turn()
    expected = add_pieces(top, 2, 3, size=8)
    assert of_turns(top, media, 7) == [0, 1, 0, 1, 0, 1, 0]
    top.run()
    assert top.tokens[2] == expected


def test_where_nobody_waits_for_a_token_all_pieces_are_computed_at_once() -> None:
    media = TimedMedia(0.1)
    top = PacedTop([1.0], media, max_itl_ms=5)
    add_pieces(top, 1, 6, size=8)
    assert of_turns(top, media, 2) == [0, 6]


def test_a_larger_piece_than_those_that_were_computed_is_not_known() -> None:
    media = TimedMedia(0.0001)
    top = PacedTop([1.0], media, max_itl_ms=60)
    top.add(1, [1, 2], 100)
    top.turn()
    add_pieces(top, 2, 2, size=8)
    add_pieces(top, 3, 3, size=9)
    assert of_turns(top, media, 9) == [0, 1, 0, 1, 0, 1, 0, 2, 0]
