"""The errors of the runtime. Knows nobody else.

RametError
├── ClientError     the client's fault: place, fact, hint, and a 4xx (or 503, 504) status; the server goes on
└── ConfigError     an option or a model that cannot be served; reported before anything starts
"""

from ramet.ipc.params import ParamError

MOST_TOLD = 500  # characters of an exception that is not ours


class RametError(Exception):
    """Anything ramet raises on purpose."""


class ClientError(RametError):
    """`place` is the field as the client wrote it, `fact` names value and valid range, `hint` a way out.

    `code` is a word for programs, where OpenAI has one.
    """

    def __init__(self, place: str, fact: str, hint: str = "", status: int = 400, code: str = "") -> None:
        super().__init__(f"{place} {fact}".strip() + (f" ({hint})" if hint else ""))
        self.place, self.fact, self.hint, self.status, self.code = place, fact, hint, status, code

    @classmethod
    def of(cls, error: ParamError) -> "ClientError":
        return cls(error.name, error.fact, error.hint)


class ConfigError(RametError):
    """An option, a file or a model that cannot be used, with what would work."""


def told(error: BaseException) -> str:
    """What somebody else's exception says, short and fit to be sent: its own words may be anything, or fail."""
    try:
        return f"{error}"[:MOST_TOLD].encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - its __str__ is code of others as well
        return "it cannot say what is wrong"
