"""What may go wrong with a program.

ProgramError
├── CallFailed      a call's value is not there: which variable, which source line, why, and the prompt's last words
│   ├── Cancelled   the run was cancelled, or its body raised, before the call was done
│   └── RunTimeout  the run's time was up
├── Unsupported     a backend cannot do what the program asks; raised before any call of that node
├── BackendError    what a service answered: its status, and its words
└── BatchFailed     a program of run_batch failed: which, and why
"""

from ramet.frontend.ir import Where
from ramet.frontend.prompt import Prompt
from ramet.ipc.errors import ClientError, RametError

__all__ = [
    "BackendError",
    "BatchFailed",
    "CallFailed",
    "Cancelled",
    "ClientError",
    "ProgramError",
    "RunTimeout",
    "Unsupported",
]


class ProgramError(RametError):
    """Anything that the language raises on purpose."""


class Unsupported(ProgramError):
    """`what` the program asks, and `why` this backend cannot do it."""

    def __init__(self, backend: str, what: str, why: str) -> None:
        super().__init__(f"{what}: {backend} {why}")
        self.backend, self.what, self.why = backend, what, why


class BackendError(ProgramError):
    """An answer that is no result. `status`: of HTTP; 0: there was no answer."""

    def __init__(self, backend: str, message: str, status: int = 0, retry_after_s: float | None = None) -> None:
        super().__init__(f"{backend}: {message}" + (f" (HTTP {status})" if status else ""))
        self.backend, self.status, self.retry_after_s = backend, status, retry_after_s


class SeenFailures:
    """Whether anybody was told of a failure of one prompt, or with `whole` unset of its run.

    Who was told of one failure of a run needs no word of the others in the log.
    """

    def __init__(self, whole: "SeenFailures | None" = None) -> None:
        self.yes, self.whole = False, whole


class CallFailed(ProgramError):
    """`reason` is the error that the call ended with; `earlier`: that of a call before it in the same prompt."""

    def __init__(
        self, what: str, where: Where | None, reason: BaseException, prompt: Prompt, earlier: bool = False
    ) -> None:
        self.what, self.where, self.reason, self.prompt, self.earlier = what, where, reason, prompt, earlier
        self.seen = SeenFailures()
        at = f" at {where}" if where else ""
        how = "was not run, for a call before it failed" if earlier else "failed"
        why = f"{type(reason).__name__}: {reason}" if not isinstance(reason, CallFailed) else str(reason)
        super().__init__(
            f"{what}{at} {how}: {why}"
            + ("" if isinstance(reason, CallFailed) else f"; the prompt ends with {prompt.tail()!r}")
        )

    def again(self) -> "CallFailed":
        """The same error to be raised once more, for whoever asked."""
        self.see()
        return self.copy()

    def copy(self) -> "CallFailed":
        """An exception that is raised twice collects tracebacks."""
        copy = type(self)(self.what, self.where, self.reason, self.prompt, self.earlier)
        copy.seen = self.seen
        return copy

    def see(self) -> None:
        """Somebody is told of it."""
        self.seen.yes = True
        if self.seen.whole is not None:
            self.seen.whole.yes = True


class Cancelled(CallFailed):
    pass


class RunTimeout(CallFailed, TimeoutError):
    pass


class BatchFailed(ProgramError):
    """`index`: of the arguments; `reason`: what the function raised, or its first failed call ended with."""

    def __init__(self, index: int, reason: BaseException) -> None:
        super().__init__(f"batch_kwargs[{index}]: {type(reason).__name__}: {reason}")
        self.index, self.reason = index, reason
        self.__cause__ = reason
