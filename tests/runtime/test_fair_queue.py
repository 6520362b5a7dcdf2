"""Turns of keys in a queue that several threads take from."""

import queue
import threading

from ramet.runtime.fair_queue import FairQueue

WAIT_S = 60.0


def test_keys_take_turns_and_none_has_more_than_its_share() -> None:
    keys = FairQueue[str](most_of_one=1)
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
    keys, served = FairQueue[str](most_of_one=1), []
    for owner, item in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]:
        keys.put(owner, item)
    while (found := keys.pop()) is not None:
        served.append(found[1])
        keys.done(found[0])
    assert served == ["a1", "b1", "a2", "b2", "a3"]


def test_long_items_are_left_to_some_threads_and_stay_in_order_for_these() -> None:
    keys = FairQueue[str](most_of_one=9)
    keys.put("a", "long 1", is_long=True)
    keys.put("a", "short 2")
    keys.put("a", "long 3", is_long=True)
    keys.put("a", "short 4")
    assert keys.pop(only_short=True) == ("a", "short 2")
    assert [keys.pop() for _ in range(3)] == [("a", "long 1"), ("a", "long 3"), ("a", "short 4")]


def test_a_thread_waits_for_an_item_that_it_may_have_and_for_the_end() -> None:
    shared, taken = FairQueue[str](most_of_one=1), queue.Queue[tuple[str, str] | None]()
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
