"""The ring of a process: when it last moved, and its latest events, in a file that other processes map.

Whoever maps it sees what a process does although that process hangs, is stopped or has ended. Decides the layout:

    head       magic, pid, number of records | activity, time of the last beat, events so far
    kinds      JSON: of each kind of event its name, and what its numbers are
    records    a kind, begin and duration in seconds, and numbers; the oldest is overwritten

The file is allocated whole, so that a full disk is an error at the start and not a fault at some write. Its memory is
mapped at once, or it would grow for hours. Writing an event takes no lock: a reader drops what may have been
overwritten while it read, and each number of the head is stored at once. Times are CLOCK_MONOTONIC seconds.
"""

import json
import math
import mmap
import os
import struct
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, get_args

from ramet.ipc.errors import RametError

MAGIC = 0x72616D6574_01  # "ramet", and the version of the layout
MAX_NUMBERS = 11  # of an event
MANY_RECORDS, FEW_RECORDS = 1 << 15, 1 << 14  # of the scheduler, and of the others

_HEAD = struct.Struct("@qqq")
_BEAT = struct.Struct("@qd")
_COUNT = struct.Struct("@q")
_STATE_AT, _COUNT_AT, _KINDS_AT, _RECORDS_AT = 24, 40, 64, 4096
_ACTIVITY, _BEAT_S, _EVENTS_SO_FAR = 3, 4, 5  # of the words of eight bytes
_RECORD = struct.Struct(f"@qdd{MAX_NUMBERS}d")
_EVENTS = [struct.Struct(f"@qdd{n}d").pack_into for n in range(MAX_NUMBERS + 1)]  # by how many numbers it has


class RingInbox(Protocol):
    def drain(self, block: bool) -> list[Any]: ...


class Activity(IntEnum):
    """What a process is at, and so whether it is expected to move."""

    WAITING = 0  # for a message; it moves when one comes
    WORKING = 1
    EXCUSED = 2  # steps are not expected now, whatever waits: see Watchdog.excused
    STUCK = 3  # of the server alone: it moves, but a process that requests go through does not


class Pulse(NamedTuple):
    activity: Activity
    beat_s: float  # when it last moved


class RingEvent(NamedTuple):
    kind: str
    begun_s: float
    duration_s: float
    numbers: dict[str, float]


def ring_bytes(num_records: int) -> int:
    """The size of its file."""
    return _RECORDS_AT + num_records * _RECORD.size


class NoRing(RametError):
    """There is no room for one."""


class Ring:
    """The ring of the process that makes it.

    `kinds`: of each kind of event the names of its numbers; `add` takes its index.
    """

    def __init__(self, path: Path, kinds: Mapping[str, tuple[str, ...]], num_records: int) -> None:
        described = json.dumps({name: list(numbers) for name, numbers in kinds.items()}).encode()
        assert len(described) < _RECORDS_AT - _KINDS_AT, f"{len(described)} bytes of kinds"
        assert max(map(len, kinds.values()), default=0) <= MAX_NUMBERS, kinds
        self._map = _allocate(path, ring_bytes(num_records))
        # An item of these is stored at once. struct writes zeros first, which a reader may see.
        self._whole, self._seconds = memoryview(self._map).cast("q"), memoryview(self._map).cast("d")
        self._size, self._count = num_records, 0
        self._map[_KINDS_AT : _KINDS_AT + len(described)] = described
        self.beat(Activity.EXCUSED)  # it starts
        _HEAD.pack_into(self._map, 0, MAGIC, os.getpid(), num_records)

    def beat(self, activity: Activity) -> None:
        """Note that the process moves and is at this activity from now on."""
        self._seconds[_BEAT_S] = time.monotonic()  # before the activity: from which it counts
        self._whole[_ACTIVITY] = activity

    def add(self, kind: int, begun_s: float, *numbers: float) -> None:
        """An event that ends now. It moves, and stays at what it is at."""
        now_s = time.monotonic()
        place = _RECORDS_AT + self._count % self._size * _RECORD.size
        _EVENTS[len(numbers)](self._map, place, kind, begun_s, now_s - begun_s, *numbers)
        self._count += 1
        self._whole[_EVENTS_SO_FAR] = self._count
        self._seconds[_BEAT_S] = now_s


class RingView:
    """The ring of another process, or of one that has ended.

    Raises OSError where there is no file, ValueError for another.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, self.pid, self._size = _HEAD.unpack_from(self._map, 0)
        if magic != MAGIC:
            raise ValueError(f"{path} is not a ring of this version, or not a whole one yet")

    def pulse(self) -> Pulse:
        activity, beat_s = _BEAT.unpack_from(self._map, _STATE_AT)
        return Pulse(Activity(activity), beat_s)

    def events(self) -> list[RingEvent]:
        """From the oldest on. The one that may be written at this moment is not among them."""
        kinds = list(json.loads(self._map[_KINDS_AT:_RECORDS_AT].rstrip(b"\0")).items())
        (end,) = _COUNT.unpack_from(self._map, _COUNT_AT)
        begin = max(0, end - self._size)
        copied = self._map[_RECORDS_AT : _RECORDS_AT + self._size * _RECORD.size]
        (now,) = _COUNT.unpack_from(self._map, _COUNT_AT)
        begin = max(begin, now - self._size + 1)  # those before may have been overwritten meanwhile
        return [_event(kinds, copied, n % self._size) for n in range(begin, end)]


def _event(kinds: list[tuple[str, list[str]]], records: bytes, place: int) -> RingEvent:
    kind, begun_s, duration_s, *numbers = _RECORD.unpack_from(records, place * _RECORD.size)
    name, meanings = kinds[kind]
    return RingEvent(name, begun_s, duration_s, dict(zip(meanings, numbers)))


class MessageRing:
    """The ring of a process that handles the messages of a union one after the other: an event for each.

    `counted`: of a type of message the list in it whose length is worth knowing.
    """

    def __init__(self, path: Path, union: Any, counted: Mapping[type, str]) -> None:
        types = get_args(union) or (union,)
        kinds = {each.__name__: (counted[each],) if each in counted else () for each in types}
        self._ring = Ring(path, kinds, FEW_RECORDS)
        lists = {each: attrgetter(name) for each, name in counted.items()}
        self._kinds = {each: (kind, lists.get(each)) for kind, each in enumerate(types)}

    def beat(self, activity: Activity) -> None:
        self._ring.beat(activity)

    def handle(self, handler: Callable[[Any], None], message: Any) -> None:
        begun_s, kind = time.monotonic(), type(message)
        handler(message)
        number, list_of = self._kinds[kind]
        if list_of is None:
            self._ring.add(number, begun_s)
        else:
            self._ring.add(number, begun_s, len(list_of(message)))

    def handle_all(self, inbox: RingInbox, handler: Callable[[Any], None]) -> NoReturn:
        """For ever."""
        while True:
            self.beat(Activity.WAITING)
            messages = inbox.drain(block=True)
            self.beat(Activity.WORKING)
            for message in messages:
                self.handle(handler, message)
            del messages, message  # they may be as large as bodies, and the next one may be long in coming


def _allocate(path: Path, num_bytes: int) -> mmap.mmap:
    """A fresh file of zeros. Raises NoRing."""
    try:
        return _allocated(path, num_bytes)
    except OSError as error:
        fact = f"{path.parent} has no room for a ring of {num_bytes / (1 << 20):.1f} MiB: {error.strerror}"
        raise NoRing(f"{fact}; set TMPDIR to a folder that has") from None


def _allocated(path: Path, num_bytes: int) -> mmap.mmap:
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened, 0, num_bytes)
        else:
            os.ftruncate(opened, num_bytes)
        return mmap.mmap(opened, num_bytes, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
    finally:
        os.close(opened)


def silence_s(pulse: Pulse, now_s: float, asked_s: float = math.inf) -> float:
    """For how long a process has not moved although it should. `asked_s`: when a message for it was sent."""
    match pulse.activity:
        case Activity.EXCUSED:
            return 0.0
        case Activity.WAITING:
            return max(0.0, now_s - asked_s) if pulse.beat_s < asked_s else 0.0
        case Activity.WORKING | Activity.STUCK:
            return max(0.0, now_s - pulse.beat_s)
