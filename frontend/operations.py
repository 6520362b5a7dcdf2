"""What is submitted for one prompt, executed in order: one operation after the other, on the backend's event loop.

Operations are submitted from any thread and return at once. One that fails ends the queue, and refuses all that was
submitted after it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ramet.frontend.errors import CallFailed, Cancelled, ProgramError, RunTimeout, SeenFailures
from ramet.frontend.ir import Where
from ramet.frontend.prompt import EMPTY
from ramet.frontend.run import Run, RunCancelled, TimeIsUp


class StreamOperation(NamedTuple):
    """`act` runs on the event loop. `refuse` is called instead, or after it failed, for whoever waits for a value."""

    act: Callable[[], Awaitable[None] | None]
    refuse: Callable[[CallFailed], None]
    what: str = "appending"
    where: Where | None = None
    is_call: bool = False  # of the backend, which a run that was ended makes no more
    is_close: bool = False  # nothing that asks the backend comes after it


class OperationQueue:
    """`prompt` is what the operations that are done have made. `begun`: False until a fork is reached."""

    def __init__(self, run: Run, begun: bool) -> None:
        self.run, self.prompt = run, EMPTY
        self.error: CallFailed | None = None  # what ended it
        self._seen = SeenFailures(run.seen)
        self._operations: deque[StreamOperation] = deque()
        self._begun, self._waking, self._working = begun, False, False

    def _end(self, error: CallFailed) -> None:
        """The operation that ends the queue has failed."""

    def _submit(self, operation: StreamOperation) -> None:
        self._operations.append(operation)
        if not self._waking:
            self._waking = True
            if not self.run.backend.loop.soon(self._wake):
                self._refuse_all(ProgramError(f"{self.run.backend.name}: {self.run.backend.loop.closed_error()}"))

    def _wake(self) -> None:
        self._waking = False  # before the queue is read: no operation is left behind
        if self._begun and not self._working and self._operations:
            self._working = True
            self.run.keep(asyncio.get_running_loop().create_task(self._work()), self._pause)

    def _pause(self) -> None:
        """The task has ended, perhaps cancelled before it did anything."""
        self._working = False
        self._wake()

    async def _work(self) -> None:
        while self._operations:
            operation = self._operations.popleft()
            if self.error is not None:
                self._refuse(operation)
            elif operation.is_call and self.run.ended_by is not None:
                self._fail(operation, self.run.ended_by)
            else:
                await self._execute(operation)

    async def _execute(self, operation: StreamOperation) -> None:
        try:
            waiting = operation.act()
            if waiting is not None:
                await waiting
        except asyncio.CancelledError:
            self._fail(operation, self.run.ended_by or RunCancelled("the event loop ended"))
        except BaseException as error:  # noqa: BLE001 - given to whoever uses the value
            self._fail(operation, error)

    def _fail(self, operation: StreamOperation, reason: BaseException) -> None:
        """The failure ends the stream."""
        if isinstance(reason, CallFailed):
            self.error = reason.copy()
            self.error.seen = self._seen
        else:
            self.error = self._failure(operation, reason)
        self.run.failed(self.error)
        operation.refuse(self.error)
        self._end(self.error)

    def _failure(self, operation: StreamOperation, reason: BaseException, earlier: bool = False) -> CallFailed:
        kind: type[CallFailed] = type(reason) if isinstance(reason, CallFailed) else CallFailed
        if isinstance(reason, RunCancelled | TimeIsUp):
            kind = Cancelled if isinstance(reason, RunCancelled) else RunTimeout
        error = kind(operation.what, operation.where, reason, self.prompt, earlier)
        error.seen = self._seen
        return error

    def _refuse_all(self, reason: ProgramError) -> None:
        """The event loop has ended, and nothing that was submitted will be executed."""
        self._waking = False
        while self._operations:
            operation = self._operations.popleft()
            if self.error is None:
                self._fail(operation, reason)
            else:
                self._refuse(operation)

    def _refuse(self, operation: StreamOperation) -> None:
        assert self.error is not None, "a stream without an error refuses nothing"
        operation.refuse(self._failure(operation, self.error, earlier=True))
