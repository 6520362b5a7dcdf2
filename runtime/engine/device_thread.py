"""A runner on a thread of its own, so that a CPU computes a step while the scheduler plans the next one.

The thread holds no interpreter lock while kernels run: torch and our C++ kernels release it.
"""

from concurrent.futures import Future, ThreadPoolExecutor

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import Batch, Pending, Runner, StepResult


class _OnThread:
    """A step that waits for the thread or runs there."""

    def __init__(self, thread: ThreadPoolExecutor, launched: "Future[Pending]") -> None:
        self._thread, self._launched = thread, launched
        self._drawn: Future[None] | None = None

    def draw(self, allowed: Ints) -> None:
        self._drawn = self._thread.submit(lambda: self._launched.result().draw(allowed))

    def result(self) -> StepResult:
        if self._drawn is not None:
            self._drawn.result()
        return self._launched.result().result()


class DeviceThread:
    """Launches batches in the order they come. `close` waits for the step that runs."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="device")

    def launch(self, batch: Batch) -> Pending:
        return _OnThread(self._thread, self._thread.submit(self._runner.launch, batch))

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
