"""Large bodies are read in a process of their own: streams would wait for Python's lock while a thread reads one.

Decides what happens while that process starts (the calling thread reads), and when it ends (another one is started, and
tries the body again). What goes there and comes back is pickled: a handler's function with what it knows of the server,
and what it makes of the body.
"""

import logging
import pickle
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ramet.runtime.errors import RametError, ServerError
from ramet.runtime.intake.body import made_of
from ramet.runtime.intake.body_items import Bytes
from ramet.runtime.server.http.body_worker import UNREAD, BodyJob
from ramet.runtime.workers.subordinate import WAITED_FOR
from ramet.runtime.workers.worker_process import TRIES, TimedOut, WorkerEnded, WorkerProcess

log = logging.getLogger("ramet")
T = TypeVar("T")
MODULE = "ramet.runtime.server.http.body_worker"
READ_WITHIN_S = 120.0  # CPU time: the largest bodies that are taken need a hundredth of it
STRETCH = 5  # times as long on a busy machine


class BodyReader:
    """One process. Only one thread at a time may call `read`."""

    def __init__(self) -> None:
        self._process: WorkerProcess[memoryview] = WorkerProcess(MODULE, [str(WAITED_FOR)], memoryview)
        # the kernel ends the process with the thread that started it, so that thread stays
        self._starter = ThreadPoolExecutor(1, "body-reader")
        self._starting: Future[None] | None = None
        self._closed = False

    def read(self, make: Callable[[dict[str, Any]], T], body: Bytes, max_items: int) -> T:
        """`made_of`, in the process if it is there. Raises what `made_of` raises, and ServerError."""
        if not self._is_ready():
            return made_of(make, body, max_items)
        answer = self._answered(BodyJob(pickle.dumps(make, pickle.HIGHEST_PROTOCOL), max_items), body)
        if answer == UNREAD:
            return made_of(make, body, max_items)
        made: T
        error: RametError | None
        made, error = pickle.loads(answer)
        if error is not None:
            raise error
        return made

    def close(self) -> None:
        self._closed = True
        self._process.close()
        self._starter.shutdown()

    def _is_ready(self) -> bool:
        """Whether it has started; if not, it does so beside this thread."""
        if self._starting is not None and not self._starting.done():
            return False
        if self._process.pid is not None:
            return True
        self._starting = self._starter.submit(self._start)
        return False

    def _start(self) -> None:
        try:
            self._process.start()
        except (WorkerEnded, TimedOut) as error:
            if not self._closed:
                log.warning("the process that reads large bodies cannot be started (%s): the server reads them", error)

    def _answered(self, job: BodyJob, body: Bytes) -> memoryview:
        for _ in range(TRIES):
            try:
                self._process.start()
                return self._process.run(job, READ_WITHIN_S, STRETCH * READ_WITHIN_S, attached=body)
            except (WorkerEnded, TimedOut) as error:
                log.warning("the process that reads large bodies ended over one of %d bytes: %s", len(body), error)
        raise ServerError("The process that reads large bodies ended. Send the request again, or in parts.", 503)
