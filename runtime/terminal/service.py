"""A chat's requests to a server of OpenAI's API: which models there are, and a reply as it comes, in structs."""

from collections.abc import Generator, Iterator
from http.client import HTTPException, HTTPResponse
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from ramet.runtime.terminal.http_client import NOT_READABLE, ServerClient, ServiceError, error_message, lost

MAX_LINE = 16 << 20  # bytes of one event
KEY_NAMES = "--api-key or RAMET_API_KEY"
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
T = TypeVar("T")


class ListedModel(Struct, frozen=True):
    id: str


class Cards(Struct, frozen=True):
    data: list[ListedModel]


class ReceivedDelta(Struct, frozen=True):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None  # the same, by another name


class ReceivedChoice(Struct, frozen=True):
    delta: ReceivedDelta | None = None
    finish_reason: str | None = None


class PromptDetails(Struct, frozen=True):
    cached_tokens: Count | None = None


class ReceivedUsage(Struct, frozen=True):
    completion_tokens: Count | None = None
    prompt_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None


class Chunk(Struct, frozen=True):
    """One event of a reply. Servers leave out fields, or send null."""

    choices: list[ReceivedChoice] | None = None
    usage: ReceivedUsage | None = None
    error: Any = None


class ChatService:
    """The server at `url`, which may end in /v1."""

    def __init__(self, url: str, key: str) -> None:
        self._client = ServerClient(url, key, KEY_NAMES)

    def models(self) -> list[str]:
        """Their names, the server's own first."""
        path = "/v1/models"
        cards = _decoded(self._client.read(path, MAX_LINE), Cards, f"{self._client.base}{path} has no list of models")
        return [card.id for card in cards.data]

    def chunks(self, body: dict[str, Any]) -> Generator[Chunk]:
        """Of one reply. Leaving the loop closes the connection, which ends the request."""
        data = msgspec.json.encode({**body, "stream": True})
        with self._client.open("/v1/chat/completions", data) as answer:
            for line in _lines(answer):
                if not line.startswith(b"data:"):
                    continue  # a comment or the line between events
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                yield _chunk(data)
        raise ServiceError("the reply ended before its end")


def _lines(answer: HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            line = answer.readline(MAX_LINE + 1)
        except (OSError, HTTPException) as error:
            raise lost(error) from None
        if not line:
            return
        if len(line) > MAX_LINE:
            raise ServiceError(f"a line of the reply is longer than {MAX_LINE} bytes")
        yield line


def _chunk(data: bytes) -> Chunk:
    chunk = _decoded(data, Chunk, "the reply is not as OpenAI's API has it")
    if chunk.error is not None:
        raise ServiceError(error_message(data) or f"the reply is an error: {data[:300].decode(errors='replace')}")
    return chunk


def _decoded(data: bytes, kind: type[T], fact: str) -> T:
    """`fact`: what is said where it is no such struct."""
    try:
        return msgspec.json.decode(data, type=kind)
    except NOT_READABLE as error:
        raise ServiceError(f"{fact}: {error}") from None
