"""Packed log-probabilities and hidden states become the entries that arrived, in whatever messages and parts."""

import asyncio
from array import array
from typing import Any

import numpy as np
import pytest

from ramet.ipc.message import Uid
from ramet.ipc.messages import HiddenStates, Logprobs, pack_ids
from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.replies import long_list
from ramet.runtime.replies.logprobs import HiddenLists, LogprobLists
from ramet.runtime.replies.long_list import MAX_PART, Listed, LongList, in_parts, parts_of

UID = Uid(1)
NAN = float("nan")


def packed(values: Any) -> bytes:
    return np.asarray(values, dtype=np.float32).tobytes()


def triple(value: float, token: int, texts: bool) -> tuple[float | None, int, str | None]:
    known = None if np.isnan(value) else float(np.float32(value))
    return known, token, f"t{token}" if texts else None


def whole(entries: Listed) -> list[Any]:
    return LongList(parts_of(entries)).whole()


class Made:
    """Random log-probabilities of `num` places as messages, and the lists they must become, entry by entry."""

    def __init__(self, seed: int, num: int, ask: LogprobSpec, of_prompt: bool) -> None:
        draw, k, m = np.random.default_rng(seed), ask.num_top, len(ask.ids)
        ids, top_ids = draw.integers(0, 50, num), draw.integers(0, 50, (num, k))
        values, tops, chosen = draw.normal(size=num), draw.normal(size=(num, k)), draw.normal(size=(num, m))
        values[0 if of_prompt else num // 2] = NAN
        self.messages, first = list[Logprobs](), 0
        while first < num:
            stop = 1 if of_prompt and first == 0 else int(draw.integers(first, num)) + 1
            at, bare = slice(first, stop), of_prompt and first == 0
            texts = {int(t): f"t{t}" for t in [*ids[at], *top_ids[at].flat]} if ask.texts else {}
            message = Logprobs(UID, of_prompt, pack_ids(ids[at].tolist()), packed(values[at]), texts=texts)
            if not bare:
                more = pack_ids(top_ids[at].flatten().tolist()), packed(tops[at]), packed(chosen[at])
                message = Logprobs(UID, of_prompt, message.ids, message.values, *more, texts=texts)
            self.messages.append(message)
            first = stop
        rows = range(num)
        self.tokens = [triple(values[i], int(ids[i]), ask.texts) for i in rows]
        every = [[triple(tops[i, j], int(top_ids[i, j]), ask.texts) for j in range(k)] for i in rows]
        own = [[triple(chosen[i, j], ask.ids[j], ask.texts) for j in range(m)] for i in rows]
        self.tops = [None if np.isnan(values[i]) else every[i] for i in rows]
        self.chosen = [None if np.isnan(values[i]) else own[i] for i in rows]


@pytest.mark.parametrize("seed", range(20))
def test_lists_are_what_arrived_in_whatever_parts(seed: int, monkeypatch: pytest.MonkeyPatch):
    draw = np.random.default_rng(1000 + seed)
    monkeypatch.setattr(long_list, "MAX_PART", int(draw.integers(1, 40)))
    monkeypatch.setattr(long_list, "MAX_SHORT", int(draw.integers(0, 40)))
    ids = tuple(draw.integers(0, 50, int(draw.integers(0, 4))).tolist())
    ask = LogprobSpec(0, int(draw.integers(0, 5)), ids, texts=bool(seed % 2))
    texts = tuple(f"t{t}" for t in ids) if ask.texts else ()
    lists, made = LogprobLists(ask, texts), {}
    for name, places in (("input", lists.prompt), ("output", lists.output)):
        made[name] = Made(seed, int(draw.integers(1, 60)), ask, of_prompt=name == "input")
        counts = [lists.add(message) for message in made[name].messages]
        each = 1 + ask.num_top + len(ids)
        assert sum(counts) == len(places) * each - (name == "input") * (each - 1)
        assert [place.token for place in places] == made[name].tokens
    first = {name: int(draw.integers(0, len(each.tokens) + 1)) for name, each in made.items()}
    meta = lists.meta(first["output"], first["input"])
    for name, each in made.items():
        start = first[name]
        assert whole(meta.pop(f"{name}_token_logprobs")) == each.tokens[start:]
        if ask.num_top:
            assert whole(meta.pop(f"{name}_top_logprobs")) == each.tops[start:]
        if ids:
            assert whole(meta.pop(f"{name}_token_ids_logprobs")) == each.chosen[start:]
    assert not meta


@pytest.mark.parametrize("num", [1, 127, 1000])
@pytest.mark.parametrize("num_top", [0, 1, 256, 2 * MAX_PART])
def test_no_part_has_more_numbers_than_the_bound(num: int, num_top: int):
    lists = LogprobLists(LogprobSpec(0, num_top))
    row, some = bytes(4 * num_top), min(num, 10 if num_top > 256 else num)
    lists.add(Logprobs(UID, True, bytes(4 * some), bytes(4 * some), row * some, row * some))
    for name, each in (("input_token_logprobs", 1), ("input_top_logprobs", num_top)):
        if each:
            sizes = [len(part) * each for part in parts_of(lists.meta()[name])]
            assert sum(sizes) == some * each and max(sizes) <= max(MAX_PART, each)


def test_what_arrived_stays_packed():
    """A million log-probabilities take the bytes they came in, not a hundred for each."""
    lists = LogprobLists(LogprobSpec(0, 256))
    lists.add(Logprobs(UID, True, bytes(400), bytes(400), bytes(400 * 256), bytes(400 * 256)))
    kept = [value for value in vars(lists.prompt).values() if isinstance(value, array | list | dict)]
    assert sum(len(column) * column.itemsize for column in kept if isinstance(column, array)) == 800 * 257
    assert not any(column for column in kept if not isinstance(column, array))


@pytest.mark.parametrize("width", [1, 3, MAX_PART, MAX_PART + 1])
def test_hidden_states_are_a_matrix_and_rows(width: int):
    states = np.random.default_rng(width).normal(size=(7, width)).astype(np.float32)
    hidden = HiddenLists(HiddenMode.ALL, 5)
    for part in (states[:2], states[2:6], states[6:]):
        assert hidden.add(HiddenStates(UID, width, part.tobytes())) == part.size
    assert hidden.meta().whole() == [states[:5].tolist(), *states[5:].tolist()]


def test_hidden_states_that_never_came_are_an_empty_matrix():
    assert HiddenLists(HiddenMode.ALL, 5).meta().whole() == [[]]


def test_others_run_between_the_parts_of_a_list():
    turns = []

    async def others() -> None:
        while True:
            turns.append(len(made))
            await asyncio.sleep(0)

    made: list[int] = []

    def read(start: int, stop: int) -> list[int]:
        made.extend(range(start, stop))
        return list(range(start, stop))

    async def check() -> None:
        beside = asyncio.create_task(others())
        nested = LongList(iter([LongList(in_parts(read, 0, 3 * MAX_PART)), [1]]))
        assert await nested.in_turn() == [list(range(3 * MAX_PART)), 1]
        beside.cancel()

    asyncio.run(check())
    steps = np.diff([0, *turns, len(made)])
    assert len(made) == 3 * MAX_PART and max(steps) <= MAX_PART
