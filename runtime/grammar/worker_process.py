"""A compile worker as the pool sees it. What runs in the process is in runtime/grammar/worker.py."""

import time

from ramet.runtime.grammar.base import Vocabulary
from ramet.runtime.grammar.worker import CompileJob, CompilerReady, Frame, Outcome
from ramet.runtime.log import LOGGER
from ramet.runtime.workers.subordinate import STRETCH
from ramet.runtime.workers.worker_process import START_TIMEOUT_S, WorkerProcess


class CompileWorker:
    """For one thread; `close` is for any."""

    def __init__(self, vocabulary: Vocabulary, memory_mb: float, niceness: int) -> None:
        eos = ",".join(map(str, sorted(vocabulary.eos_ids)))
        options = [str(vocabulary.folder), str(vocabulary.size), eos, str(memory_mb), str(niceness)]
        self._process: WorkerProcess[Frame] = WorkerProcess("ramet.runtime.grammar.worker", options, Frame)
        self._libraries = set[str]()  # that the process has loaded

    def run(self, job: CompileJob, timeout_s: float) -> Outcome:
        """`timeout_s`: CPU time; on a busy machine the job may take STRETCH times as long.

        Raises TimedOut and WorkerEnded; the next call starts a new process then.
        """
        began_s, max_s = time.monotonic(), STRETCH * timeout_s
        if self._process.start() is not None:
            self._libraries.clear()
        known = job.constraint.backend in self._libraries
        frame = self._process.run(job, timeout_s if known else START_TIMEOUT_S, max_s)
        if isinstance(frame, CompilerReady):
            if not known:
                line = "a worker for constraints has loaded %s in %.1f s (not part of --grammar-timeout-s)"
                LOGGER.info(line, job.constraint.backend, time.monotonic() - began_s)
            self._libraries.add(job.constraint.backend)
            frame = self._process.read(timeout_s, max_s)
        assert not isinstance(frame, CompilerReady)
        return frame

    def close(self) -> None:
        """For good: the process has ended when this returns, and a job that runs ends with WorkerEnded."""
        self._process.close()
