"""Liveness reads rings: a process that should move and does not is found, a busy or an idle one is well."""

import time
from pathlib import Path

import pytest

from ramet.ipc.ring import Activity, Ring
from ramet.runtime.errors import ServerError
from ramet.runtime.server.liveness import Liveness, WatchedProcess

TIMEOUT_S = 100.0


class Watched:
    """One process, whose clock can be put on."""

    def __init__(self, tmp_path: Path) -> None:
        self.ring = Ring(tmp_path / "scheduler.ring", {"step": ()}, 4)
        self.num_asked, self.passed_s, self.work = 0, 0.0, list[str]()
        peer = WatchedProcess("scheduler", tmp_path / "scheduler.ring", self.ask)
        self.liveness = Liveness([peer], TIMEOUT_S, [self.work], lambda: time.monotonic() + self.passed_s)

    def ask(self) -> None:
        self.num_asked += 1

    def after(self, seconds: float) -> bool:
        self.passed_s += seconds
        self.liveness.look()
        return self.liveness.is_alive


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_step_may_take_as_long_as_the_timeout_and_no_longer(watched: Watched):
    watched.work.append("a request")
    watched.ring.beat(Activity.WORKING)
    assert watched.after(TIMEOUT_S - 1)
    assert not watched.after(2)
    with pytest.raises(ServerError, match=r"The scheduler process has not moved for 101 s .*--watchdog-timeout 100"):
        watched.liveness.check()


def test_a_process_without_work_is_well_for_ever_and_not_woken(watched: Watched):
    watched.ring.beat(Activity.WAITING)
    assert watched.after(1e6) and watched.num_asked == 0


def test_a_process_that_waits_must_move_when_there_is_work(watched: Watched):
    watched.ring.beat(Activity.WAITING)
    assert watched.after(1e6)
    watched.work.append("a request")
    assert watched.after(1) and watched.num_asked == 1
    assert watched.after(TIMEOUT_S - 1) and watched.num_asked == 1
    assert not watched.after(2)


def test_a_process_that_answers_is_asked_again_and_well(watched: Watched):
    watched.work.append("a request")
    watched.ring.beat(Activity.WAITING)
    assert watched.after(0)
    watched.ring.beat(Activity.WAITING)  # it has moved, and waits again
    for asked in range(2, 5):
        assert watched.after(0) and watched.num_asked == asked
        watched.ring.beat(Activity.WAITING)


def test_work_that_ended_asks_for_no_sign_any_more(watched: Watched):
    watched.work.append("a request")
    watched.ring.beat(Activity.WAITING)
    assert watched.after(1)
    watched.work.clear()
    assert watched.after(1e6)


def test_of_a_process_that_is_excused_nothing_is_expected(watched: Watched):
    watched.work.append("a request")
    watched.ring.beat(Activity.EXCUSED)
    assert watched.after(1e6) and watched.num_asked == 0
