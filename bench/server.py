"""A server of our own to measure: started on a free port, read for its address, ended by SIGTERM.

Decides when a start counts as failed, and what is kept of a server's lines. Knows no load. CPU times come from /proc,
so they are there on Linux alone.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ramet.bench.errors import BadOption

ADDRESS = re.compile(r"at (https?://\S+) \(ready in")
PHASES = re.compile(r"(\S+)\s+ready \(s\): (.*)")
BODY_READER = "ramet.runtime.server.http.body_worker"
RENDERER = "ramet.runtime.text.render_worker"
OF_GRAMMARS = "ramet.runtime.grammar."  # modules whose processes compile constraints and parse outputs
CONSTRAINTS = "constraints"
WORKERS = {  # of processes below a role that work for clients' bodies: the module, and what they count as
    "server": (BODY_READER, "server"),
    "tokenizer": (RENDERER, "renderer"),
    "scheduler": (OF_GRAMMARS, CONSTRAINTS),
}
ROLES = ("server", "tokenizer", "scheduler", "detokenizer")
READY_WITHIN_S = 120.0
KEPT_WITHIN_S = 120.0
END_WITHIN_S = 90.0  # more than a server gives the requests that still run
KEPT_LINES = 30
PROC = Path("/proc")
FILE_PAGES = re.compile(  # the path of a mapping, its size, and its pages in memory: all, and those of no file
    r"^\w+-\w+ \S+ \S+ \S+ [1-9]\d* +(\S+).*\n"
    r"Size: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB\n(?:.*\n)*?Anonymous: +(\d+) kB",
    re.MULTILINE,
)
GONE = (FileNotFoundError, ProcessLookupError)  # it ended meanwhile


@dataclass
class Server:
    """A running server's parent process and address; `phases` is what each process said of its start, by name."""

    pid: int
    url: str = ""
    phases: dict[str, str] = field(default_factory=dict)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))


@contextmanager
def started(options: Sequence[str], checkout: Path | None = None) -> Iterator[Server]:
    """`ramet serve` with these options, from the moment it announces its address. BadOption if it fails.

    `checkout`: whose; None: what this process imports.
    """
    command = [sys.executable, "-P", "-m", "ramet", "serve", "--port", "0", *options]
    env = None if checkout is None else {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    server, announced = Server(process.pid), Future[str]()
    reader = threading.Thread(target=_read, args=(process, server, announced), daemon=True)
    reader.start()
    try:
        server.url = _address(announced)
        yield server
    finally:
        _end(process)
        reader.join()
    if process.returncode != 0:
        raise BadOption(f"the server ended with code {process.returncode}:\n{''.join(server.lines)}")


def await_kept(folder: Path) -> None:
    """Until a server that has just started has kept its packed weights there. BadOption if it does not."""
    until = time.monotonic() + KEPT_WITHIN_S
    while not list(folder.glob("*.weights")):
        if time.monotonic() > until:
            raise BadOption(f"no packed weights were kept in {folder} within {KEPT_WITHIN_S:.0f} s")
        time.sleep(0.1)


def _address(announced: "Future[str]") -> str:
    try:
        return announced.result(timeout=READY_WITHIN_S)
    except TimeoutError:
        raise BadOption(f"the server was not ready within {READY_WITHIN_S:.0f} s") from None


def _read(process: "subprocess.Popen[str]", server: Server, announced: "Future[str]") -> None:
    """Follow what a server prints until its end: a full pipe would stop it."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            server.lines.append(line)
            if found := PHASES.search(line):
                server.phases[found[1]] = found[2]
            elif (found := ADDRESS.search(line)) and not announced.done():
                announced.set_result(found[1])
    if not announced.done():
        announced.set_exception(BadOption(f"the server did not start:\n{''.join(server.lines)}"))


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise BadOption(f"the server did not end within {END_WITHIN_S:.0f} s of SIGTERM and was killed") from None


def cpu_seconds(parent: int, proc: Path = PROC) -> dict[str, float]:
    """User and system seconds so far by role: the processes whose parent is this one, the last argument names them.

    What reads a server's large bodies counts as the server. What renders large chats is a role of its own, "renderer",
    and so is what works for constraints, with those of its children that have ended.
    """
    used: dict[str, float] = {}
    for role, folder in _with_workers(parent, proc):
        with contextlib.suppress(*GONE):
            status = (folder / "stat").read_text(errors="replace")
            used[role] = used.get(role, 0.0) + _cpu(status) + (_ended_cpu(status) if role == CONSTRAINTS else 0.0)
    return used


def peak_bytes(parent: int, proc: Path = PROC) -> dict[str, int]:
    """The most memory that each role has had resident."""
    return _memory(parent, "VmHWM", proc)


def resident_bytes(parent: int, proc: Path = PROC) -> dict[str, int]:
    """The memory that each role has resident now."""
    return _memory(parent, "VmRSS", proc)


def memory_by_process(parent: int, proc: Path = PROC) -> dict[str, dict[str, int]]:
    """Bytes of the parent and of all below it by name: "rss", "pss", "anonymous" and "mapped".

    Anonymous pages belong to no file. Mapped bytes are those of files in the address space, in memory or not: what
    file pages may take at most. Processes that a role starts are summed under its name, as "scheduler's".
    """
    found: dict[str, dict[str, int]] = {}
    roles = {folder: role for role, folder in _children(parent, proc)}
    for root, name in [(proc / str(parent), "parent"), *roles.items()]:
        below = [] if name == "parent" else list(_tree(int(root.name), proc))[1:]
        for folder, label in [(root, name), *((each, f"{name}'s") for each in below)]:
            with contextlib.suppress(*GONE):
                sizes = dict(
                    re.findall(r"^(Rss|Pss|Anonymous):\s+(\d+) kB", (folder / "smaps_rollup").read_text(), re.M)
                )
                maps = re.findall(r"^(\w+)-(\w+) \S+ \S+ \S+ [1-9]\d*", (folder / "maps").read_text(), re.M)
                so_far = found.setdefault(label, dict.fromkeys(("rss", "pss", "anonymous", "mapped"), 0))
                for kind in ("rss", "pss", "anonymous"):
                    so_far[kind] += 1024 * int(sizes.get(kind.capitalize(), 0))
                so_far["mapped"] += sum(int(end, 16) - int(begin, 16) for begin, end in maps)
    return found


def file_pages(parent: int, proc: Path = PROC) -> dict[str, dict[str, tuple[int, int]]]:
    """Bytes of each file in the memory of the parent and of each role, and those of it that are mapped."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for root, name in [(proc / str(parent), "parent"), *((folder, role) for role, folder in _children(parent, proc))]:
        with contextlib.suppress(*GONE):
            for path, size, rss, own in FILE_PAGES.findall((root / "smaps").read_text()):
                so_far = found.setdefault(name, {}).get(path, (0, 0))
                found[name][path] = (so_far[0] + 1024 * (int(rss) - int(own)), so_far[1] + 1024 * int(size))
    return found


def proportional_bytes(parent: int, proc: Path = PROC) -> int:
    """The memory of a process and all below it now; pages that several have count once in all (PSS)."""
    total = 0
    for folder in _tree(parent, proc):
        with contextlib.suppress(*GONE):
            found = re.search(r"^Pss:\s+(\d+) kB", (folder / "smaps_rollup").read_text(), re.MULTILINE)
            total += 1024 * int(found[1]) if found else 0
    return total


def _tree(parent: int, proc: Path) -> Iterator[Path]:
    below: dict[int, list[int]] = {}
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(*GONE):
            below.setdefault(_parent((folder / "stat").read_text(errors="replace")), []).append(int(folder.name))
    found = [parent]
    for pid in found:  # which grows
        found += below.get(pid, [])
    return (proc / str(pid) for pid in found)


def _memory(parent: int, line: str, proc: Path) -> dict[str, int]:
    sums: dict[str, int] = {}
    for role, folder in _with_workers(parent, proc):
        with contextlib.suppress(*GONE):
            found = re.search(rf"{line}:\s+(\d+) kB", (folder / "status").read_text())
            sums[role] = sums.get(role, 0) + (1024 * int(found[1]) if found else 0)
    return sums


def _children(parent: int, proc: Path) -> Iterator[tuple[str, Path]]:
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(*GONE):
            if _parent((folder / "stat").read_text(errors="replace")) == parent:
                role = (folder / "cmdline").read_text().rstrip("\0").rpartition("\0")[2].partition("-")[0]
                if role in ROLES:
                    yield role, folder


def _with_workers(parent: int, proc: Path) -> Iterator[tuple[str, Path]]:
    """`_children`, and the WORKERS of each."""
    for role, folder in _children(parent, proc):
        yield role, folder
        for below in list(_tree(int(folder.name), proc))[1:] if role in WORKERS else ():
            with contextlib.suppress(*GONE):
                module, counts_as = WORKERS[role]
                if module in (below / "cmdline").read_text():
                    yield counts_as, below


def _fields(status: str) -> list[str]:
    """Of /proc/PID/stat from the third on: a name in brackets, which may hold blanks, stands before them."""
    return status.rpartition(")")[2].split()


def _parent(status: str) -> int:
    return int(_fields(status)[1])


def _cpu(status: str) -> float:
    return _seconds(_fields(status)[11:13])


def _ended_cpu(status: str) -> float:
    """Of the process's children that it has waited for."""
    return _seconds(_fields(status)[13:15])


def _seconds(ticks: list[str]) -> float:
    user, system = ticks
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
