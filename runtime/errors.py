"""The errors of the runtime; the client's (ClientError) are in ramet/ipc/errors.py, for every process knows them.

RametError
├── ClientError     the client's fault: place, fact, hint, and a 4xx (or 503, 504) status; the server goes on
└── ConfigError     an option or a model that cannot be served; reported before anything starts
"""

from ramet.ipc.errors import ClientError, ErrorRecord, RametError

__all__ = ["ClientError", "ConfigError", "ErrorRecord", "RametError", "describe"]
MAX_DESCRIBED = 500  # characters of an exception that is not ours


class ConfigError(RametError):
    """An option, a file or a model that cannot be used, with what would work."""


def describe(error: BaseException) -> str:
    """What somebody else's exception says, short and fit to be sent: its own words may be anything, or fail."""
    try:
        return f"{error}"[:MAX_DESCRIBED].encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - its __str__ is code of others as well
        return "it cannot say what is wrong"
