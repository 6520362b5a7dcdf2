"""Which adapter gets which slot: free ones first, then that of whoever was asked for longest ago and is not needed."""

import logging
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock

from ramet.ipc.channel import MemoryChannel
from ramet.ipc.messages import ToServer
from ramet.runtime.config import make_args
from ramet.runtime.engine.extras import AdapterPlacement
from ramet.runtime.errors import ConfigError
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.features.adapters import Adapters, AdapterSlots
from ramet.runtime.scheduler.features.background import Background


def slots_of(num: int, *generations: int, pinned: tuple[int, ...] = ()) -> AdapterSlots:
    slots = AdapterSlots(num)
    for generation in generations:
        slots.add(generation, generation in pinned)
    return slots


def test_the_one_asked_for_longest_ago_gives_its_slot() -> None:
    slots = slots_of(2, 1, 2, 3)
    assert [slots.take(each, set()) for each in (1, 2, 1, 3)] == [1, 2, 1, 2]
    assert slots.take_placements() == (AdapterPlacement(1, 1), AdapterPlacement(2, 2), AdapterPlacement(2, 3))
    assert slots.take_placements() == ()


def test_a_slot_that_is_used_or_pinned_is_not_given_away() -> None:
    slots = slots_of(2, 1, 2, 3, pinned=(1,))
    assert [slots.take(1, set()), slots.take(2, {1})] == [1, 2]
    assert slots.take(3, {2}) is None
    assert slots.take(3, set()) == 2  # although 1 was asked for before 2
    slots.remove(1)
    assert slots.take(2, {2}) == 1


def test_what_is_removed_before_the_runner_has_heard_of_it_is_not_placed() -> None:
    slots = slots_of(2, 1, 2)
    slots.take(1, set()), slots.take(2, {1})
    slots.remove(1)
    assert slots.take_placements() == (AdapterPlacement(2, 2),)


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("atr"), st.integers(1, 7)), max_size=40))
def test_the_runner_has_what_the_slots_say(num: int, moves: list[tuple[str, int]]) -> None:
    """After each take the placements, in their order, have put the adapter into the slot that its request was given."""
    slots, loaded, placed = AdapterSlots(num), set[int](), dict[int, int]()
    for move, generation in moves:
        match move:
            case "a" if generation not in loaded:
                slots.add(generation, is_pinned=generation == 7 and num > 1)
                loaded.add(generation)
            case "r" if generation in loaded:
                slots.remove(generation)
                loaded.discard(generation)
            case "t" if generation in loaded:
                slot = slots.take(generation, set())
                placed |= {each.slot: each.generation for each in slots.take_placements()}
                assert slot is not None and placed[slot] == generation
        slots.check()


class Source:
    """Reads when it is told to. What is wrong with an adapter is its path."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.added: list[int] = []
        self.threads: set[int] = set()

    def read(self, path: str) -> str:
        self.threads.add(threading.get_ident())
        assert self.go.wait(60)
        match path:
            case "/deep":
                raise RecursionError("too deep")
            case "/odd":
                raise ConfigError("/odd is no adapter")
        return path

    def add(self, generation: int, adapter: str) -> None:
        if adapter == "/foreign":
            raise ConfigError("/foreign is of another model")
        self.added.append(generation)

    def drop(self, generation: int) -> None:
        self.added.remove(generation)


class Loading:
    def __init__(self, num_slots: int = 2, **options: Any) -> None:
        self.slots, self.source, self.woken = AdapterSlots(num_slots), Source(), threading.Semaphore(0)
        self.background = Background(self.woken.release)
        self.adapters = Adapters(make_args(**options), self.slots, self.source)
        self.adapters.register(ControlHandler(MemoryChannel(ToServer), ManualClock(), lambda: None), self.background)
        self.answers: dict[int, str] = {}

    def load(self, generation: int, path: str, pinned: bool = False) -> None:
        self.adapters.load(generation, path, pinned, lambda refusal: self.answers.update({generation: refusal}))

    def settle(self, times: int = 1) -> None:
        self.source.go.set()
        for _ in range(times):
            assert self.woken.acquire(timeout=60)
            self.background.wake()


def test_an_adapter_is_read_beside_the_scheduler_and_added_by_it() -> None:
    loading = Loading()
    loading.load(1, "/a")
    loading.background.wake()
    assert not loading.answers and 1 not in loading.slots
    loading.settle()
    assert loading.answers == {1: ""} and 1 in loading.slots and loading.source.added == [1]
    assert threading.get_ident() not in loading.source.threads
    loading.adapters.drop(1)
    assert not loading.source.added and 1 not in loading.slots


def test_what_is_being_read_counts() -> None:
    loading = Loading(num_slots=3, max_loaded_loras=2)
    loading.load(1, "/a", pinned=True)
    loading.load(2, "/b")
    loading.load(3, "/c")
    assert "2 adapters are loaded, at most 2 may be" in loading.answers.pop(3)
    loading.settle(2)
    assert loading.answers == {1: "", 2: ""} and loading.slots.num_pinned == 1
    pinning = Loading(num_slots=2)
    pinning.load(1, "/a", pinned=True)
    pinning.load(2, "/b", pinned=True)
    assert "1 of the 2 slots are pinned" in pinning.answers[2]
    pinning.settle()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/deep", "/deep cannot be loaded: too deep"),
        ("/odd", "/odd is no adapter"),
        ("/foreign", "/foreign is of another model"),
    ],
)
def test_a_folder_that_is_refused_harms_nobody(path: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    loading = Loading()
    with caplog.at_level(logging.ERROR, "ramet"):
        loading.load(1, path)
        loading.load(2, "/b")
        loading.settle(2)
    assert why in loading.answers[1] and loading.answers[2] == ""
    assert ("Traceback" in caplog.text) == (path == "/deep")
    assert loading.source.added == [2] and loading.slots.num_loaded == 1
    loading.adapters.drop(1)
