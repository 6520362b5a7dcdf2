"""Ctrl-C comes between two steps."""

import signal
import threading
from collections.abc import Iterator

import pytest

from ramet.runtime.interrupts import interrupts_wait


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """A process that a shell starts in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_when_the_step_is_done_and_not_before():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        signal.raise_signal(signal.SIGINT)
        done.append(1)
    assert done == [1] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_just_runs():
    done = []

    def run() -> None:
        with interrupts_wait():
            done.append(1)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [1]
