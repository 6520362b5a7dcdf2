"""Which adapter gets which slot: free ones first, then that of whoever was asked for longest ago and is not needed."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.config import Args
from ramet.runtime.engine.batch import AdapterPlacement
from ramet.runtime.scheduler.adapters import Adapters, AdapterSlots


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


class Failing:
    """A source whose folders are worse than any that it knows."""

    def load(self, generation: int, path: str) -> None:
        raise RecursionError("too deep")

    def drop(self, generation: int) -> None:
        raise AssertionError("nothing was loaded")


def test_a_folder_that_fails_in_a_way_of_its_own_is_refused_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slots = AdapterSlots(2)
    adapters = Adapters(Args(), slots, Failing())
    with caplog.at_level(logging.ERROR, "ramet"):
        assert "/a/b cannot be loaded: too deep" in adapters.load(1, "/a/b", pinned=False)
    assert "Traceback" in caplog.text and slots.num_loaded == 0
    adapters.drop(1)
