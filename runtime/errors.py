"""The errors of the runtime; the client's (ClientError) are in ramet/ipc/errors.py, for every process knows them.

RametError
├── ClientError     the client's fault: place, fact, hint, and a 4xx (or 503, 504) status; the server goes on
├── ConfigError     an option or a model that cannot be served; reported before anything starts
└── ServerError     ours: a 5xx status
    ├── EngineClosed   an in-process engine was closed while a call ran, or before it
    └── EngineFailed   a thread of an in-process engine failed, and with it every call
"""

from ramet.ipc.errors import ClientError, ErrorRecord, RametError

__all__ = [
    "ClientError",
    "ConfigError",
    "EngineClosed",
    "EngineFailed",
    "ErrorRecord",
    "RametError",
    "ServerError",
    "card_advice",
    "describe",
    "forget_frames",
]
MAX_DESCRIBED = 500  # characters of an exception that is not ours
REFUSED = 2  # exit code where a line has said what the user can mend
CARD_ERRORS = {  # of torch and Triton, by name, for not every process loads them
    "OutOfMemoryError": "lower --mem-fraction-static, --max-total-tokens, --chunked-prefill-size or "
    "--cuda-graph-max-bs",
    "OutOfResources": "a kernel asks for more than this card has; --attention-backend reference runs without it, "
    "slower",
    "AcceleratorError": "the card computes nothing more for this process; with CUDA_LAUNCH_BLOCKING=1 the error names "
    "the kernel, and --disable-cuda-graph or --attention-backend reference may run without it",
}


class ConfigError(RametError):
    """An option, a file or a model that cannot be used, with what would work."""


class ServerError(RametError):
    """Ours: `status` is 5xx and `message` says what the client may do about it."""

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class EngineClosed(ServerError):
    """The in-process engine was closed: while the call ran, or before it. Or it is one of the process that forked."""

    def __init__(self, why: str = "The engine was closed (LLM.close, or the end of its `with` block).") -> None:
        super().__init__(why, 503)


class EngineFailed(ServerError):
    """A thread of the in-process engine ended with an exception. Open calls end with this error, as do later ones."""

    def __init__(self, thread: str, error: BaseException) -> None:
        advice = card_advice(error)
        super().__init__(
            f"The engine's {thread} failed: {type(error).__name__}: {describe(error)}{advice and f' ({advice})'}"
        )


def card_advice(error: BaseException) -> str:
    """What to set where a card failed; empty for other errors."""
    names = [each.__name__ for each in type(error).__mro__]
    return next((advice for name, advice in CARD_ERRORS.items() if name in names), "")


def describe(error: BaseException) -> str:
    """The text of an exception of other code, short and fit to be sent: its own text may be anything, or fail."""
    try:
        return f"{error}"[:MAX_DESCRIBED].encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - its __str__ is code of others as well
        return "it cannot say what is wrong"


def forget_frames(error: BaseException | None) -> None:
    """Breaks the cycle between an error that a future or a submission holds and the frames it was raised through.

    The cycle would keep the body of a refused request until the next collection, which is rare in a server
    (server/garbage.py).
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
