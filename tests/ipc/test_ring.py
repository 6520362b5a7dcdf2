"""The ring of a process: what it wrote last is there for others, also when it has been killed."""

import mmap
import re
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from ramet.ipc.messages import Detokenize, Render, Tokenize
from ramet.ipc.ring import Activity, MessageRing, NoRing, Pulse, Ring, RingView, silence_s
from tests.fakes.file_size import largest_file

KINDS = {"step": ("rows", "seconds"), "rest": ()}


def test_events_come_back_in_order_with_their_names(tmp_path: Path):
    ring = Ring(tmp_path / "a.ring", KINDS, 8)
    begun_s = time.monotonic() - 5
    ring.add(0, begun_s, 3, 0.25)
    ring.add(1, begun_s + 1)
    step, rest = RingView(tmp_path / "a.ring").events()
    assert (step.kind, step.begun_s, step.numbers) == ("step", begun_s, {"rows": 3.0, "seconds": 0.25})
    assert (rest.kind, rest.begun_s, rest.numbers) == ("rest", begun_s + 1, {})
    ended = [event.begun_s + event.duration_s for event in (step, rest)]
    assert begun_s + 5 <= ended[0] <= ended[1] == RingView(tmp_path / "a.ring").pulse().beat_s


@pytest.mark.parametrize("activity", Activity)
def test_an_event_moves_a_process_and_leaves_it_at_what_it_is_at(tmp_path: Path, activity: Activity):
    ring = Ring(tmp_path / "a.ring", KINDS, 8)
    ring.beat(activity)
    before_s = RingView(tmp_path / "a.ring").pulse().beat_s
    ring.add(1, before_s)
    after = RingView(tmp_path / "a.ring").pulse()
    assert after.activity is activity and after.beat_s >= before_s


@pytest.mark.parametrize("num", [7, 8, 9, 100])
def test_the_latest_events_stay_and_the_file_does_not_grow(tmp_path: Path, num: int):
    ring = Ring(tmp_path / "a.ring", KINDS, 8)
    size = (tmp_path / "a.ring").stat().st_size
    for number in range(num):
        ring.add(0, float(number), number, 0.0)
    begun = [event.begun_s for event in RingView(tmp_path / "a.ring").events()]
    assert begun == [float(number) for number in range(max(0, num - 7), num)]
    assert (tmp_path / "a.ring").stat().st_size == size


def test_a_reader_beside_a_writer_in_another_process_gets_whole_beats(tmp_path: Path):
    """Each is later than the one before and none is zero, at what the writer is at."""
    path = tmp_path / "a.ring"
    loop = "ring.beat(Activity.WORKING); ring.add(0, 0.0)"
    code = (
        "import sys; from pathlib import Path; from ramet.ipc.ring import Activity, Ring\n"
        f"ring = Ring(Path(sys.argv[1]), {{'rest': ()}}, 8); {loop}; print(flush=True)\nwhile True: {loop}"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            view = RingView(path)
            before_s = view.pulse().beat_s
            for _ in range(200_000):
                activity, beat_s = view.pulse()
                assert activity is Activity.WORKING and beat_s >= before_s > 0
                before_s = beat_s
        finally:
            writer.kill()


def test_a_reader_beside_a_writer_gets_whole_events(tmp_path: Path):
    ring, view = Ring(tmp_path / "a.ring", KINDS, 16), RingView(tmp_path / "a.ring")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            ring.add(0, float(number), number, float(number))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            events = view.events()
            assert all(len({each.begun_s, *each.numbers.values()}) == 1 for each in events)
            begun = [each.begun_s for each in events]
            assert begun == sorted(set(begun))
    finally:
        stop.set()
        writer.join()


def test_the_ring_of_a_killed_process_can_be_read(tmp_path: Path):
    code = """
import os, signal, sys
from pathlib import Path
from ramet.ipc.ring import Activity, Ring
ring = Ring(Path(sys.argv[1]), {"step": ()}, 8)
ring.add(0, 1.0)
ring.beat(Activity.WORKING)
os.kill(os.getpid(), signal.SIGKILL)
"""
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a.ring")])
    assert writer.wait(20) == -9
    view = RingView(tmp_path / "a.ring")
    assert (view.pid, view.pulse().activity) == (writer.pid, Activity.WORKING)
    assert [event.kind for event in view.events()] == ["step"]


def test_a_file_that_is_no_ring_is_refused(tmp_path: Path):
    (tmp_path / "a.ring").write_bytes(bytes(8192))
    with pytest.raises(ValueError, match="is not a ring"):
        RingView(tmp_path / "a.ring")


def test_messages_are_events_with_their_size(tmp_path: Path):
    ring = MessageRing(tmp_path / "a.ring", Tokenize | Render | Detokenize, {Detokenize: "ids"})
    handled = list[object]()
    for message in (Render(7, memoryview(b"")), Detokenize(9, b"abcd")):
        ring.handle(handled.append, message)
    events = RingView(tmp_path / "a.ring").events()
    assert [(event.kind, event.numbers) for event in events] == [("Render", {}), ("Detokenize", {"ids": 4.0})]
    assert len(handled) == 2 and events[0].begun_s <= events[1].begun_s


@pytest.mark.parametrize(
    ("activity", "asked_s", "silent_s"),
    [
        (Activity.WORKING, float("inf"), 5.0),
        (Activity.WAITING, float("inf"), 0.0),  # nobody wants anything of it
        (Activity.WAITING, 12.0, 3.0),  # it was asked and has not moved since
        (Activity.WAITING, 9.0, 0.0),  # it has moved since
        (Activity.EXCUSED, 12.0, 0.0),
    ],
)
def test_who_should_move_and_does_not_is_silent(activity: Activity, asked_s: float, silent_s: float):
    assert silence_s(Pulse(activity, 10.0), 15.0, asked_s) == silent_s


@pytest.mark.skipif(not hasattr(mmap, "MAP_POPULATE"), reason="this system maps pages when they are written")
def test_events_take_no_memory_that_a_fresh_ring_has_not(tmp_path: Path):
    ring = Ring(tmp_path / "a.ring", {"step": ()}, 1 << 14)
    before = resident(tmp_path / "a.ring")
    for _ in range(1 << 14):
        ring.add(0, 0.0)
    assert before == resident(tmp_path / "a.ring") > 0


def resident(file: Path) -> int:
    """KiB of its mappings in this process."""
    _, _, after = Path("/proc/self/smaps").read_text().partition(f"{file}\n")
    return int(re.search(r"Rss:\s+(\d+) kB", after)[1])  # type: ignore[index]


def test_a_ring_without_room_is_an_error_that_names_its_folder(tmp_path: Path):
    with largest_file(1 << 16), pytest.raises(NoRing, match=rf"{tmp_path} has no room for a ring of 1.8 MiB.*TMPDIR"):
        Ring(tmp_path / "a.ring", KINDS, 1 << 14)


class LargeText(str):
    """A str that a weak reference can look at."""


class EndOfTest(Exception):
    pass


def test_what_was_handled_is_let_go_before_the_next_message_comes(tmp_path: Path):
    text = LargeText("a" * 1000)
    seen, alive = weakref.ref(text), []
    waiting = [Detokenize(1, text)]  # type: ignore[arg-type]
    del text

    class Once:
        def drain(self, block: bool) -> list[Detokenize]:
            if not waiting:
                alive.append(seen())
                raise EndOfTest
            return [waiting.pop()]

    ring = MessageRing(tmp_path / "a.ring", Detokenize | Render, {})
    with pytest.raises(EndOfTest):
        ring.handle_all(Once(), lambda message: None)
    assert alive == [None]
