"""What was said so far, and what every request has beside it. A file of it is a body of /v1/chat/completions."""

import errno
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ramet.ipc.params import CHECKS
from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.intake.sampling_fields import OURS
from ramet.runtime.terminal.http_client import NOT_READABLE

KINDS: dict[str, tuple[type, ...]] = {  # of JSON schema
    "number": (int, float), "integer": (int,), "boolean": (bool,), "string": (str,), "array": (list,), "object": (dict,)
}  # fmt: skip
MAX_FILE = 64 << 20  # bytes of a file that is loaded


class SavedMessage(Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str


class SavedConversation(Struct, frozen=True):
    """What is read of a file."""

    messages: Annotated[list[SavedMessage], Meta(max_length=100_000)]


class Conversation:
    """`fields` are those of a request, but for its messages. The system prompt is empty, or the first message."""

    def __init__(self, system: str, fields: dict[str, Any]) -> None:
        self.system, self.fields = system, fields
        self.messages: list[SavedMessage] = []  # of user and assistant in turn
        self._files: set[Path] = set()  # that this chat wrote or read, and so may write

    def body(self) -> dict[str, Any]:
        return {**self.fields, "messages": self._all()}

    def asked_again(self) -> str | None:
        """Take back the last answer and its message, which is returned; None: nothing was asked yet."""
        while self.messages:
            if (last := self.messages.pop()).role == "user":
                return last.content
        return None

    def save(self, name: str) -> None:
        """A new file, or one that this chat has. Raises ConfigError."""
        data = msgspec.json.format(msgspec.json.encode(self.body()), indent=1)
        try:
            given, path = _paths(name)
            # Neither follows a link that is the last part, and a link to nowhere is in the way as a file is.
            place, flags = (path, os.O_TRUNC | os.O_NOFOLLOW) if path in self._files else (given, os.O_EXCL)
            with open(os.open(place, os.O_WRONLY | os.O_CREAT | flags, 0o600), "wb") as file:
                file.write(data + b"\n")
        except OSError as error:
            raise ConfigError(f"{name} cannot be written: {error.strerror}") from None
        self._files.add(path)

    def load(self, name: str) -> None:
        """The messages of a file in the place of those so far. Raises ConfigError."""
        try:
            _, path = _paths(name)
            with path.open("rb") as file:
                messages = msgspec.json.decode(file.read(MAX_FILE), type=SavedConversation).messages
        except OSError as error:
            raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
        except NOT_READABLE as error:
            raise ConfigError(f"{name} is not a saved chat: {error}") from None
        self.system = messages.pop(0).content if messages and messages[0].role == "system" else ""
        self.messages = messages
        self._files.add(path)

    def _all(self) -> list[SavedMessage]:
        return [SavedMessage("system", self.system), *self.messages] if self.system else self.messages


def _paths(name: str) -> tuple[Path, Path]:
    """The path as it is given, and where its file is, whatever it is called later. Raises OSError."""
    try:
        given = Path(name).expanduser()
        return given, given.resolve()
    except (RuntimeError, ValueError) as error:  # no such user, a loop of links, a null character
        raise OSError(errno.EINVAL, str(error)) from None


def read_field(text: str) -> tuple[str, Any]:
    """NAME=VALUE or NAME VALUE of a request's field. What is no JSON is text. Raises ConfigError."""
    name, value = _split(text)
    if name in ("messages", "stream", "stream_options", "n"):
        raise ConfigError(f"{name} cannot be set: the chat sets it itself")
    return name, _checked_field(name, _json_or_text(value))


def _json_or_text(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except NOT_READABLE:
        return value


def _checked_field(name: str, value: Any) -> Any:
    """A known parameter must be of its kind. Its range is for the server to check, which may be another's."""
    if name in OURS and value is not None:
        check = CHECKS[OURS[name]]
        if not _is_of_kind(value, check.schema):
            try:
                check.read(name, value)
            except ClientError as error:
                raise ConfigError(str(error)) from None
    return value


def _is_of_kind(value: Any, schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_is_of_kind(value, each) for each in schema["anyOf"])
    return "type" in schema and type(value) in KINDS[schema["type"]]


def _split(text: str) -> tuple[str, str]:
    for place, char in enumerate(text):
        if char in "= \t":
            return text[:place], text[place + 1 :].strip().removeprefix("=").strip()
    raise ConfigError(f"{text!r} has no value, must be a field of /v1/chat/completions and its value: temperature=0.5")
