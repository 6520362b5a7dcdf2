"""Threads that keys of clients share: turns, the share of one key, and failures."""

import queue
import threading
from typing import Any

from ramet.runtime.workers.fair_threads import FairThreads

WAIT_S = 120.0


class Calls:
    """Serves items: those in `slow` wait for `goes_on`."""

    def __init__(self, *slow: str) -> None:
        self.slow, self.goes_on = set(slow), threading.Event()
        self.begun, self.served = queue.Queue[str](), queue.Queue[str]()

    def serve(self, item: Any) -> None:
        self.begun.put(item)
        if item in self.slow:
            self.goes_on.wait(WAIT_S)
        self.served.put(item)

    def next_served(self, num: int) -> list[str]:
        return [self.served.get(timeout=WAIT_S) for _ in range(num)]


def test_a_key_with_many_slow_calls_leaves_threads_to_another_one() -> None:
    calls = Calls("a1", "a2", "a3")
    threads = FairThreads(2, "test", calls.serve, share=0.5)
    for item in ("a1", "a2", "a3"):
        threads.put("alice", item)
    for item in ("b1", "b2"):
        threads.put("bob", item)
    assert calls.next_served(2) == ["b1", "b2"]
    calls.goes_on.set()
    assert calls.next_served(3) == ["a1", "a2", "a3"]
    threads.close()


def test_keys_take_turns_on_one_thread() -> None:
    calls = Calls("a1")
    threads = FairThreads(1, "test", calls.serve, share=0.5)
    for owner, item in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]:
        threads.put(owner, item)
    calls.goes_on.set()
    assert calls.next_served(5) == ["a1", "b1", "a2", "b2", "a3"]
    threads.close()


def test_calls_without_a_key_may_have_all_threads() -> None:
    calls = Calls("x", "y")
    threads = FairThreads(2, "test", calls.serve, share=0.5)
    threads.put("", "x")
    threads.put("", "y")
    assert {calls.begun.get(timeout=WAIT_S) for _ in range(2)} == {"x", "y"}
    calls.goes_on.set()
    threads.close()


def test_what_waits_is_dropped_at_the_end() -> None:
    calls = Calls("a1")
    threads = FairThreads(1, "test", calls.serve)
    threads.put("a", "a1")
    assert calls.begun.get(timeout=WAIT_S) == "a1"
    threads.put("a", "a2")
    ending = threading.Thread(target=threads.close)
    ending.start()
    calls.goes_on.set()
    ending.join(WAIT_S)
    threads.put("a", "a3")
    assert calls.next_served(1) == ["a1"]
    assert calls.served.empty()
