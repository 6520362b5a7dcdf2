"""Turns of keys, and of items of different size, in a queue that several threads take from."""

import queue
import threading
from itertools import pairwise

from ramet.runtime.workers.fair_queue import MIN_SIZE, FairQueue

WAIT_S = 60.0


def test_keys_take_turns_and_none_has_more_than_its_share() -> None:
    keys = FairQueue[str](max_of_one=1)
    for item in ("1", "2", "3"):
        keys.put("a", item)
    keys.put("b", "4")
    assert [keys.pop(), keys.pop()] == [("a", "1"), ("b", "4")]
    keys.put("b", "5")
    keys.put("", "6")
    assert keys.pop() == ("", "6"), "it has no owner, and the others have their share"
    assert keys.pop() is None
    keys.done("b")
    assert keys.pop() == ("b", "5"), "a's turn is next, but a has its share"
    keys.done("a")
    assert keys.pop() == ("a", "2")


def test_a_key_that_was_served_comes_behind_the_others() -> None:
    keys, served = FairQueue[str](max_of_one=1), []
    for owner, item in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]:
        keys.put(owner, item)
    while (found := keys.pop()) is not None:
        served.append(found[1])
        keys.done(found[0])
    assert served == ["a1", "b1", "a2", "b2", "a3"]


def test_large_items_are_left_to_some_threads() -> None:
    keys = FairQueue[str](max_of_one=9)
    for item, size in [("large 1", 2 * MIN_SIZE), ("small 2", MIN_SIZE), ("large 3", MIN_SIZE + 1), ("small 4", 1)]:
        keys.put("a", item, size)
    assert [keys.pop(MIN_SIZE) for _ in range(3)] == [("a", "small 2"), ("a", "small 4"), None]
    assert [keys.pop() for _ in range(3)] == [("a", "large 1"), ("a", "large 3"), None]


def served(sizes: FairQueue[int], num: int) -> list[int]:
    found = [sizes.pop() for _ in range(num)]
    return [item for _, item in filter(None, found)]


def test_items_of_like_size_stay_in_order() -> None:
    sizes = FairQueue[int](max_of_one=99)
    for size in (70_000, 100_000, 66_000):
        sizes.put("a", size, size)
    assert served(sizes, 3) == [70_000, 100_000, 66_000]


def test_a_small_item_does_not_wait_for_large_ones_that_came_before_it() -> None:
    sizes = FairQueue[int](max_of_one=99)
    for _ in range(64):
        sizes.put("", 1 << 20, 1 << 20)
    assert served(sizes, 3) == [1 << 20] * 3
    for num in range(1, 20):
        sizes.put("", 100_000, 100_000)
        assert 100_000 in served(sizes, 2), f"one large item at most comes before the small one, here number {num}"


def test_a_large_item_waits_for_as_many_bytes_of_small_ones_as_the_one_before_it_has() -> None:
    sizes = FairQueue[int](max_of_one=99)
    small, large = 100_000, 1 << 20
    for _ in range(4):
        sizes.put("", large, large)
    for _ in range(1000):
        sizes.put("", small, small)
    order = served(sizes, 100)
    places = [i for i, size in enumerate(order) if size == large]
    assert len(places) == 4
    assert all((after - before - 2) * small <= large for before, after in pairwise(places))


def test_a_size_that_was_absent_has_no_claim_to_what_was_served_meanwhile() -> None:
    sizes = FairQueue[int](max_of_one=99)
    small, large = 1 << 17, 1 << 20
    for _ in range(64):
        sizes.put("", large, large)
    assert served(sizes, 32) == [large] * 32
    for _ in range(64):
        sizes.put("", small, small)
    assert served(sizes, 36).count(large) >= 3, "eight small ones have the bytes of a large one"


def test_items_that_need_not_be_served_are_forgotten_with_their_size() -> None:
    sizes = FairQueue[int](max_of_one=99)
    sizes.put("", 1, 1)
    places = [sizes.put("", size, size) for size in (1 << 17, 1 << 20)]
    for place in places:
        sizes.remove("", place)
    sizes.remove("", places[0])
    assert served(sizes, 2) == [1]


def test_a_thread_waits_for_an_item_that_it_may_have_and_for_the_end() -> None:
    shared, taken = FairQueue[str](max_of_one=1), queue.Queue[tuple[str, str] | None]()
    shared.put("a", "1")
    shared.put("a", "2")
    assert shared.take() == ("a", "1")
    thread = threading.Thread(target=lambda: [taken.put(shared.take()) for _ in range(2)], daemon=True)
    thread.start()
    shared.done("a")
    assert taken.get(timeout=WAIT_S) == ("a", "2")
    shared.put("a", "3")
    shared.close()
    assert taken.get(timeout=WAIT_S) is None
    shared.put("b", "4")
    assert shared.pop() is None and shared.take() is None
