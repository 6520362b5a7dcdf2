"""One record for everything that is refused, on the wire and as an exception."""

from collections.abc import Mapping
from typing import Any

import msgspec

MAX_PLACE, MAX_FACT = 200, 4000  # characters of an error: a client chooses names, and values that are not cut elsewhere


class ErrorRecord(msgspec.Struct, frozen=True, array_like=True):
    """`place` is the field as the client wrote it, `fact` names its value and the valid range, `hint` a way out.

    `status` is an HTTP status, or 0 where somebody asked for the end. `code` is a word for programs, where OpenAI has
    one.
    """

    place: str
    fact: str
    hint: str = ""
    status: int = 400
    code: str = ""

    def __str__(self) -> str:
        return f"{self.place} {self.fact}".strip() + (f" ({self.hint})" if self.hint else "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


class RametError(Exception):
    """Anything that ramet raises on purpose; by default a failure of ours, which no field of a client's explains."""

    place, status, code = "", 500, ""

    def __reduce__(self) -> Any:
        """By its words and fields, whatever __init__ takes: an error may come from another process."""
        return _unpickled, (type(self), str(self), vars(self))


def _unpickled(kind: type[RametError], words: str, fields: Mapping[str, Any]) -> RametError:
    error = kind.__new__(kind, words)
    vars(error).update(fields)
    return error


class ClientError(RametError):
    """A request that cannot be served as it is. It carries its ErrorRecord."""

    def __init__(self, place: str, fact: str, hint: str = "", status: int = 400, code: str = "") -> None:
        place, fact, hint = _cut(place, MAX_PLACE), _cut(fact, MAX_FACT), _cut(hint, MAX_FACT)
        self.record = ErrorRecord(place, fact, hint, status, code)
        self.place, self.fact, self.hint, self.status, self.code = place, fact, hint, status, code
        super().__init__(str(self.record))

    @classmethod
    def of(cls, record: ErrorRecord) -> "ClientError":
        return cls(record.place, record.fact, record.hint, record.status, record.code)

    def at(self, place: str) -> "ClientError":
        """This error under another name of its field."""
        return ClientError.of(msgspec.structs.replace(self.record, place=place))
