"""Processes of `ramet bench peers`: how an engine is started, asked for a round and ended, and what memory it has."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ramet.bench.errors import BadOption
from ramet.bench.loads import Load
from ramet.bench.peer_engines import Peer

WORKERS = Path(__file__).resolve().with_name("peer_workers")
ANSWERS = "RAMET_BENCH_ANSWERS"  # as in peer_workers/protocol.py
ANSWER_WITHIN_S = 900.0
END_WITHIN_S = 30.0
SAMPLE_S = 0.05
PROC = Path("/proc")
_ERROR = re.compile(r"^\s*(\w+(?:\.\w+)*(?:Error|Exception|Exit)\b.*|error: .*)$", re.MULTILINE)
_FOLDER = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")


class MissingPeer(Exception):
    """A peer that is not installed or does not start; the message says which."""


class PeerSide:
    """A process of one peer, with its first token behind it."""

    def __init__(self, process: "subprocess.Popen[str]", answers: int, peer: Peer, log: Path) -> None:
        """Raises Missing. `answers`: the descriptor that it answers on."""
        self.peer, self.pid = peer, process.pid
        self._process, self._answers, self._log = process, os.fdopen(answers), log
        started = time.time()
        ready = self._answer()
        self.pool_bytes: int | None = ready["pool_bytes"]  # all there from the start; None: they come as they are used
        self.version, self.start_s = str(ready["version"]), float(ready["at"]) - float(ready["since"] or started)
        self.cpu_s: list[float] = []  # of the worker's own process, a round each
        self.peak: Peak | None = None

    def run(self, load: Load, seed: int) -> float:
        """Seconds of one round."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": load.prompts(seed), "output": load.output}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer["lengths"] != [load.output] * load.requests:
            raise BadOption(f"{self.peer.name} made {sorted(set(answer['lengths']))} tokens, must make {load.output}")
        self.cpu_s.append(float(answer["cpu_s"]))
        return float(answer["seconds"])

    def pause(self) -> None:
        """Some engines spin while they wait for work."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self._answers.close()

    def _answer(self) -> dict[str, Any]:
        if not select.select([self._answers], [], [], ANSWER_WITHIN_S)[0]:
            raise MissingPeer(f"{self.peer.name} did not answer within {ANSWER_WITHIN_S:.0f} s")
        line = self._answers.readline()
        if not line:
            raise MissingPeer(f"{self.peer.name} ended with exit code {self._process.wait()}{_reason(self._log)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _reason(log: Path) -> str:
    """The last error that a process printed, without folders of this machine."""
    found = _ERROR.findall(log.read_text(errors="replace"))
    return f": {_FOLDER.sub('', found[-1])[:200]}" if found else ""


@contextmanager
def side(peer: Peer, model: Path, work: Path, watched: bool = False) -> Iterator[PeerSide]:
    """Started, from a checkpoint that is converted before; `watched`: with its peak of memory. Raises Missing."""
    if not peer.is_installed:
        raise MissingPeer(f"{peer.name} is not installed (make peers)")
    log = work / f"{peer.worker}.log"
    with log.open("w") as output:
        if peer.prepares:
            with _process(peer, model, work, output, "--prepare") as (process, answers):
                os.close(answers)
                if code := process.wait():
                    raise MissingPeer(f"{peer.name} cannot convert the model, exit code {code}{_reason(log)}")
        with contextlib.ExitStack() as stack:
            process, answers = stack.enter_context(_process(peer, model, work, output))
            peak = stack.enter_context(Peak(process.pid, peer.has_client)) if watched else None
            made = stack.enter_context(contextlib.closing(PeerSide(process, answers, peer, log)))
            made.peak = peak
            yield made


@contextmanager
def _process(
    peer: Peer, model: Path, work: Path, output: Any, *more: str
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A worker in a session of its own, which ends with it, and the descriptor that it answers on."""
    answers, written = os.pipe()
    environment = {**os.environ, **peer.variables(), ANSWERS: str(written)}
    command = [str(peer.python), str(WORKERS / f"{peer.worker}_worker.py"), str(model), str(work), *peer.arguments]
    with subprocess.Popen(
        [*command, *more], env=environment, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
        pass_fds=(written,), start_new_session=True, text=True,
    ) as process:  # fmt: skip
        os.close(written)
        try:
            yield process, answers
            _end(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _end(process: "subprocess.Popen[str]") -> None:
    """A worker ends with its input."""
    assert process.stdin is not None
    with contextlib.suppress(ProcessLookupError, BrokenPipeError):
        os.killpg(process.pid, signal.SIGCONT)
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=END_WITHIN_S)


@contextmanager
def busy_core() -> Iterator[None]:
    """A process that computes and nothing else."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


class Peak:
    """The most memory that the processes of a session have together, each by its share (PSS), while it is watched."""

    def __init__(self, session: int, without_leader: bool) -> None:
        self._bytes = 0
        self._session, self._without = session, session if without_leader else None
        self._ended = threading.Event()

    def __enter__(self) -> "Peak":
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.bytes()
            if self._ended.wait(SAMPLE_S):
                return

    def bytes(self) -> int:
        """So far."""
        self._bytes = max(self._bytes, sum(map(_pss, _members(self._session, self._without))))
        return self._bytes


def _members(session: int, without: int | None) -> Iterator[Path]:
    """Folders in /proc of a session's processes."""
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session and int(folder.name) != without:
                yield folder


def _pss(folder: Path) -> int:
    with contextlib.suppress(OSError):  # it ended meanwhile
        found = re.search(r"^Pss:\s+(\d+) kB", (folder / "smaps_rollup").read_text(), re.MULTILINE)
        return 1024 * int(found[1]) if found else 0
    return 0
