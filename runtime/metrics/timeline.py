"""Rings as one timeline of processes and steps, in the Chrome trace event format, which Perfetto opens.

Decides what is shown how, and where a file of it is written when nobody asked for it. Reads files alone, so it works
whatever state the processes are in. `python -m ramet.runtime.metrics.timeline FOLDER SECONDS` writes one to stdout, so
that the server's process does not spend the time.
"""

import gzip
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import msgspec

from ramet.ipc.paths import SocketFolder
from ramet.ipc.ring import Activity, RingEvent, RingView
from ramet.runtime.errors import ConfigError
from ramet.version import __version__

Slice = dict[str, Any]  # an event of the format
MAIN, DEVICE = 1, 2  # tracks of a process
DEFAULT_S, MAX_S = 30.0, 86400.0  # how far a timeline goes back
MAX_KEPT = 8  # files in a folder that were written without being asked for
PATTERN = "timeline-*.json.gz"


def timeline(sockets: SocketFolder, seconds: float = DEFAULT_S) -> bytes:
    """JSON, compressed: what the processes of a server did in the last seconds. Raises ConfigError without any."""
    now_s = time.monotonic()
    events: list[Slice] = []
    for index, (name, path) in enumerate(sockets.rings().items()):
        events += _of_process(name, index, RingView(path), now_s, seconds)
    if not events:
        raise ConfigError(f"{sockets.path} has no rings: no server runs there")
    events.sort(key=lambda event: event.get("ts", -1.0))  # names of tracks first
    about = {"version": __version__, "written_unix_s": time.time(), "written_monotonic_s": now_s}
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    return gzip.compress(msgspec.json.encode(document), 5)


def _of_process(name: str, index: int, ring: RingView, now_s: float, seconds: float) -> Iterator[Slice]:
    pid, pulse = ring.pid, ring.pulse()
    yield _meta("process_name", pid, MAIN, name=name)
    yield _meta("process_sort_index", pid, MAIN, sort_index=index)
    recent = [each for each in ring.events() if each.begun_s + each.duration_s > now_s - seconds]
    if name == "scheduler":
        yield _meta("thread_name", pid, MAIN, name="steps")
        yield _meta("thread_name", pid, DEVICE, name="device")
        yield from _steps(recent, pid)
    else:
        yield _meta("thread_name", pid, MAIN, name="messages")
        yield from (_slice(each.kind, pid, MAIN, each.begun_s, each.duration_s, each.numbers) for each in recent)
    if pulse.activity is not Activity.WAITING:
        about = f"{pulse.activity.name.lower()} when this was written"
        yield _slice(about, pid, MAIN, pulse.beat_s, now_s - pulse.beat_s, {})


def _steps(events: Sequence[RingEvent], pid: int) -> Iterator[Slice]:
    """What the scheduler's thread did for each step; beside it, what the device did, placed by how long it took."""
    free_s = 0.0  # when the device had done the step before
    for event in events:
        of = event.numbers
        told = {name: of[name] for name in ("step", "rows", "prefill_tokens")}
        end_s = event.begun_s + event.duration_s
        applied_s = end_s - of["results_s"]
        waited_s = applied_s - of["wait_s"]
        yield _slice("plan", pid, MAIN, event.begun_s, of["plan_s"], told)
        yield _slice("wait", pid, MAIN, waited_s, of["wait_s"], told)
        yield _slice("results", pid, MAIN, applied_s, of["results_s"], told)
        computed_s = of["forward_s"] + of["sample_s"]
        begun_s = max(free_s, min(max(event.begun_s + of["plan_s"], free_s), applied_s - computed_s))
        yield _slice("forward", pid, DEVICE, begun_s, of["forward_s"], told)
        yield _slice("sample", pid, DEVICE, begun_s + of["forward_s"], of["sample_s"], told)
        free_s = begun_s + computed_s
        levels = {name: of[name] for name in ("running", "waiting")}
        yield {"name": "requests", "ph": "C", "ts": _micro(end_s), "pid": pid, "args": levels}


def _slice(name: str, pid: int, track: int, begun_s: float, duration_s: float, numbers: dict[str, float]) -> Slice:
    """A nanosecond shorter than it was, so that rounding makes no two of a track overlap."""
    taken = max(0.0, _micro(duration_s) - 0.001)
    return {
        "name": name, "cat": "ramet", "ph": "X", "ts": _micro(begun_s), "dur": round(taken, 3), "pid": pid,
        "tid": track, "args": numbers,
    }  # fmt: skip


def _meta(kind: str, pid: int, track: int, **said: Any) -> Slice:
    return {"name": kind, "ph": "M", "pid": pid, "tid": track, "args": said}


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def trace_folder(given: str) -> Path:
    """--trace-dir; by default a folder of this user alone. Made if it is not there. Raises OSError."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(given or os.path.join(cache, "ramet", "traces"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def check_folder(given: str) -> None:
    """Raises ConfigError where a --trace-dir cannot be written to."""
    try:
        if given:
            TemporaryFile(dir=trace_folder(given)).close()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--trace-dir is {given}, which cannot be written to: {error}") from error


def write_unasked(sockets: SocketFolder, given: str) -> Path:
    """A file with the timeline in --trace-dir, where the latest MAX_KEPT stay. Raises OSError."""
    data = timeline(sockets)
    folder = trace_folder(given)
    path = folder / f"timeline-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{time.monotonic_ns() % 1_000_000}.json.gz"
    write_new(path, data)
    for old in sorted(folder.glob(PATTERN), key=lambda each: each.stat().st_mtime)[:-MAX_KEPT]:
        old.unlink(missing_ok=True)
    return path


def write_new(path: Path, data: bytes) -> None:
    """A file of this user alone that was not there before."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    sys.stdout.buffer.write(timeline(SocketFolder(Path(sys.argv[1])), float(sys.argv[2])))
