"""Media to what a model's tower reads, in worker processes: what waits, for how long, and what becomes of failures.

A few workers, started with the first piece or ahead of it (`warm`). Requests take turns: one with many pieces does not
keep those behind it waiting. A piece has a deadline from when a worker begins with it; a worker that passes it is
killed and begun again, and so is one whose client went away and that does not end soon by itself. Runs on one event
loop; a thread waits for each worker that is busy.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from ramet.ipc.media import MediaKind, Prepared
from ramet.runtime.errors import ClientError, RametError, ServerError
from ramet.runtime.log import LOGGER
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.media.turns import MediaTurns
from ramet.runtime.media.worker import MediaDone, MediaJob, MediaRefused, Outcome
from ramet.runtime.media.worker_process import MediaWorker
from ramet.runtime.options.media_options import MediaArgs
from ramet.runtime.workers.worker_process import TimedOut, WorkerEnded, tried

GRACE_S = 1.0  # of a worker whose client went away: most pieces end sooner, and another process takes seconds to begin
MAX_WAITING = 1024  # pieces


@dataclass(slots=True, eq=False)
class QueuedPiece:
    """One that a worker has."""

    source: GivenMedia
    job: MediaJob
    is_wanted: bool = True  # False: its client went away


class MediaPool:
    """`folder`: for the files, of this user alone; whoever gave it removes it. `share`: as that of Turns."""

    def __init__(self, model_folder: Path, folder: Path, limits: MediaArgs, share: float = 1.0) -> None:
        self._folder, self._limits = folder, limits
        names = [f"media-{i + 1}" for i in range(limits.media_workers)]
        self._workers = [MediaWorker(model_folder, limits, name) for name in names]
        self._turns = MediaTurns(self._workers, MAX_WAITING, share)
        self._threads = ThreadPoolExecutor(limits.media_workers, "ramet-media")
        self._numbers = count(1)
        self._sizes: dict[str, int] = {}  # bytes of each file
        self.num_prepared = Counter[MediaKind]()
        self.busy_s: dict[MediaKind, float] = {}  # of workers, with pieces that were refused as well
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def num_waiting(self) -> int:
        """Pieces that no worker has begun with."""
        return self._turns.num_waiting

    @property
    def num_bytes(self) -> int:
        """Of the files that are there."""
        return sum(self._sizes.values())

    def warm(self) -> None:
        """Start the workers one after the other, so that no piece need wait for that."""
        self._begin(self._warm())

    async def prepare(
        self, source: GivenMedia, data: bytes | list[bytes], request: Hashable, owner: str = ""
    ) -> Prepared:
        """`data`: the encoded bytes; of a film that is a list of pictures those of each; b"" beside `source.arrays`.

        Pieces of the same `request` wait for one another; `owner`: see Turns. Raises ClientError and ServerError.
        """
        worker = await self._turns.take(request, source.place, owner)
        piece = QueuedPiece(source, self._job(source, data))
        working = asyncio.get_running_loop().run_in_executor(self._threads, self._run, worker, piece)
        begun_s = perf_counter()
        working.add_done_callback(lambda _: self._count_time(source.kind, begun_s))
        try:
            done = await asyncio.shield(working)
        except asyncio.CancelledError:
            self._begin(self._abandon(worker, piece, working))
            raise
        except BaseException:
            self._give_back(worker, piece)
            raise
        self._turns.give(worker)
        file = piece.job.file
        self._sizes[file] = done.num_bytes
        self.num_prepared[source.kind] += 1
        return Prepared(
            kind=source.kind,
            key=done.key,
            expansion=done.expansion,
            arrays=done.arrays,
            file=file,
            place=source.place,
            grids=done.grids,
            are_features=piece.job.are_features,
            is_given=source.arrays is not None,
            is_expanded=done.is_expanded,
        )

    def _job(self, source: GivenMedia, data: bytes | list[bytes]) -> MediaJob:
        file = str(self._folder / f"{next(self._numbers)}.media")
        left = max(int(self._limits.media_files_mb * (1 << 20)) - self.num_bytes, 0)
        given = () if source.arrays is None else (source.arrays.of, source.arrays.are_features)
        return MediaJob(source.kind, file, left, data, source.options, *given)

    def size_of(self, prepared: Prepared) -> int:
        """Bytes of its file."""
        return self._sizes.get(prepared.file, 0)

    def release(self, prepared: Prepared) -> None:
        """Nobody needs its arrays any more."""
        if self._sizes.pop(prepared.file, None) is not None:
            _remove(prepared.file)

    async def close(self) -> None:
        """The processes have ended and the files are gone when this returns; what runs ends with ServerError."""
        self._closed = True
        self._turns.close()
        for worker in self._workers:
            worker.close()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._threads.shutdown()
        for file in self._sizes:
            _remove(file)
        self._sizes.clear()

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _warm(self) -> None:
        """They stay free meanwhile: whoever gets one waits no longer than for another one."""
        for worker in self._workers:
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, worker.start)
            except (RametError, TimedOut, WorkerEnded) as error:  # the first piece tries again, and its client is told
                if not self._closed:
                    LOGGER.warning("%s could not be begun ahead of time: %s", worker.name, error or "it takes too long")
                return

    async def _abandon(self, worker: MediaWorker, piece: QueuedPiece, working: "asyncio.Future[MediaDone]") -> None:
        """Nobody waits for it any more."""
        piece.is_wanted = False
        done, _ = await asyncio.wait({working}, timeout=GRACE_S)
        if not done:
            worker.interrupt()
            await asyncio.wait({working})
        working.exception()
        self._give_back(worker, piece)

    def _count_time(self, kind: MediaKind, begun_s: float) -> None:
        self.busy_s[kind] = self.busy_s.get(kind, 0.0) + perf_counter() - begun_s

    def _give_back(self, worker: MediaWorker, piece: QueuedPiece) -> None:
        _remove(piece.job.file)
        self._turns.give(worker)

    # -- on a thread of its own -------------------------------------------------------------------------------------

    def _run(self, worker: MediaWorker, piece: QueuedPiece) -> MediaDone:
        """Raises ClientError and ServerError."""
        try:
            outcome = self._outcome(worker, piece)
        except TimedOut as error:
            raise self._timed_out(worker, piece, error) from None
        except WorkerEnded as error:
            raise self._ended(piece, error) from None
        if isinstance(outcome, MediaRefused) and outcome.status >= 500:
            raise ServerError(f"{piece.source.place} cannot be prepared: {outcome.fact}", outcome.status)
        if isinstance(outcome, MediaRefused):
            raise ClientError(piece.source.place, outcome.fact, outcome.hint, outcome.status)
        return outcome

    def _outcome(self, worker: MediaWorker, piece: QueuedPiece) -> Outcome:
        def again(error: WorkerEnded) -> None:
            LOGGER.warning("%s ended with %s; its piece is tried again", worker.name, error)
            _remove(piece.job.file)

        return tried(lambda: self._tried(worker, piece), lambda: self._closed or not piece.is_wanted, again)

    def _tried(self, worker: MediaWorker, piece: QueuedPiece) -> Outcome:
        try:
            worker.start()
        except TimedOut:
            raise ServerError("No worker for media could be begun: it takes too long.", 503) from None
        if not piece.is_wanted:
            raise ServerError("The client went away.", 503)
        return worker.run(piece.job)

    def _timed_out(self, worker: MediaWorker, piece: QueuedPiece, error: TimedOut) -> RametError:
        place, most = piece.source.place, f"the {self._limits.media_timeout_s:g} s of --media-timeout-s"
        if error.starved:
            LOGGER.warning("%s was killed: the machine was too busy to prepare a piece", worker.name)
            return ServerError(f"{place} was not prepared: the machine was too busy to give it {most}", 503)
        LOGGER.warning("%s was killed: a piece took more than %s", worker.name, most)
        return ClientError(place, f"takes longer than {most} to prepare", "send a smaller one", 413)

    def _ended(self, piece: QueuedPiece, error: WorkerEnded) -> RametError:
        place = piece.source.place
        if self._closed or not piece.is_wanted:
            return ServerError(f"{place} was not prepared: the engine was closed, or the client went away.", 503)
        LOGGER.warning("the worker that prepared %s ended with %s", place, error)
        if not error.started:
            return ServerError(f"{place} was not prepared: its worker could not be started, it ended with {error}", 503)
        fact = f"cannot be prepared: the process that decoded it ended with {error}"
        if error.returncode in (-signal.SIGKILL, -signal.SIGABRT):
            return ClientError(place, f"{fact}, as it does where memory runs out", "send a smaller one", 413)
        return ClientError(place, fact)


def _remove(file: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(file)
