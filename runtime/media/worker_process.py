"""A media worker as the pool sees it. What runs in the process is in runtime/media/worker.py."""

import time
from pathlib import Path

import msgspec

from ramet.runtime.errors import ServerError
from ramet.runtime.log import LOGGER
from ramet.runtime.media.worker import Frame, MediaJob, MediaReady, Outcome, Unusable
from ramet.runtime.options.media_options import MediaArgs
from ramet.runtime.workers.subordinate import NICENESS, STRETCH
from ramet.runtime.workers.worker_process import ONE_THREAD, WorkerProcess

ENVIRONMENT = ONE_THREAD | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


class MediaWorker:
    """For one thread at a time; `interrupt` and `close` are for any."""

    def __init__(self, folder: Path, limits: MediaArgs, name: str) -> None:
        options = [str(folder), msgspec.json.encode(limits).decode(), str(NICENESS)]
        self._process: WorkerProcess[Frame] = WorkerProcess("ramet.runtime.media.worker", options, Frame, ENVIRONMENT)
        self._timeout_s, self.name = limits.media_timeout_s, name

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def start(self) -> None:
        """Unless it runs. Raises ServerError, WorkerEnded and TimedOut."""
        began_s = time.monotonic()
        frame = self._process.start()
        if isinstance(frame, Unusable):
            self._process.end()
            LOGGER.error("%s cannot prepare this model's media: %s", self.name, frame.fact)
            raise ServerError(f"This model's media cannot be prepared: {frame.fact}")
        if frame is not None:
            assert isinstance(frame, MediaReady), f"{type(frame).__name__} came first"
            LOGGER.info("%s is process %s, begun in %.1f s", self.name, self.pid, time.monotonic() - began_s)

    def run(self, job: MediaJob) -> Outcome:
        """After `start`. Raises TimedOut and WorkerEnded; the next `start` begins a new process then.

        The timeout is CPU time; on a busy machine the job may take STRETCH times as long.
        """
        frame = self._process.run(job, self._timeout_s, STRETCH * self._timeout_s)
        assert not isinstance(frame, MediaReady | Unusable)
        return frame

    def interrupt(self) -> None:
        """A job that runs ends with WorkerEnded. One that begins is left alone."""
        self._process.interrupt()

    def close(self) -> None:
        """For good: the process has ended when this returns."""
        self._process.close()
