"""Signals that reach a server's parent on any of its threads: the kernel may choose one that waits for nothing."""

import os
import signal
from pathlib import Path

import pytest
from live import HEARING, Live
from test_deaths import SCRIPTED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_the_kernel_gives_another_thread_drains(number: signal.Signals) -> None:
    """The main thread waits for an event then, and no handler of Python's runs before that wait ends."""
    with Live(**SCRIPTED, before=HEARING) as server:
        pid = server.process.pid
        other = max(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
        assert other != pid
        os.kill(other, number)  # to the process; the kernel prefers the thread that is named
        assert server.process.wait(20) == 0
