"""Errors as replies and as events of a stream: sections 1 and 3 of the native API, OpenAI's and Anthropic's shapes."""

from typing import Literal

from aiohttp import web
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from ramet.runtime.errors import RametError, ServerError
from ramet.runtime.intake.reply import Reply
from ramet.runtime.server.http.exchange import respond

TYPES_AND_CODES = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "permission_denied"),
    404: ("not_found_error", "not_found"),
    408: ("timeout_error", "timeout"),
    413: ("request_too_large", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable", "server_overloaded"),
    504: ("timeout_error", "timeout"),
}
# 401: as HTTP asks. The others: clients of OpenAI and Anthropic try again, but a deadline would be missed again
HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
    504: {"X-Should-Retry": "false"},
}
OF_VLLM = ("/classify", "/pooling", "/score", "/rerank")  # its own paths, with the errors of its others
ANTHROPIC_PATH = "/v1/messages"


class NativeMessage(Reply, frozen=True):
    message: str


class NativeError(Reply, frozen=True):
    error: NativeMessage


class StreamMessage(Reply, frozen=True):
    message: str
    type: str
    code: int
    retryable: bool


class StreamError(Reply, frozen=True):
    """The last event but [DONE] of a stream that broke off. Retryable: it may succeed later, or elsewhere."""

    error: StreamMessage


class OpenAIMessage(Reply, frozen=True):
    """`code` is a word or null, as OpenAI's clients declare it."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Reply, frozen=True):
    error: OpenAIMessage


class OpenAIStreamMessage(OpenAIMessage, frozen=True):
    retryable: bool


class OpenAIStreamError(Reply, frozen=True):
    """The same in OpenAI's shape."""

    error: OpenAIStreamMessage


class AnthropicDetails(Reply, frozen=True):
    error_code: str


class AnthropicMessage(Reply, frozen=True):
    type: str
    message: str
    details: AnthropicDetails | UnsetType = UNSET


class AnthropicError(Reply, frozen=True, tag_field="type", tag="error"):
    """A reply, or the last event of a stream that broke off."""

    error: AnthropicMessage


Error = NativeError | OpenAIError | AnthropicError
ERRORS: dict[str, type[Error]] = {"native": NativeError, "openai": OpenAIError, "anthropic": AnthropicError}


def shape_of(path: str) -> Literal["anthropic", "openai", "native"]:
    """The shape of errors under this path."""
    if path == ANTHROPIC_PATH or path.startswith(ANTHROPIC_PATH + "/"):
        return "anthropic"
    return "openai" if path.startswith("/v1/") or path in OF_VLLM else "native"


def internal() -> ServerError:
    """A bug."""
    return ServerError("The server failed on this request; its log says why.")


def reply_to(path: str, error: RametError) -> web.Response:
    body: Error
    match shape_of(path):
        case "anthropic":
            body = anthropic(error)
        case "openai":
            body = OpenAIError(openai(error))
        case "native":
            body = NativeError(NativeMessage(str(error)))
    return respond(body, error.status, HEADERS.get(error.status))


def in_stream(path: str, error: RametError) -> AnthropicError | OpenAIStreamError | StreamError:
    """Of a stream that cannot go on."""
    common, again = openai(error), error.status >= 500 or error.status == 429
    match shape_of(path):
        case "anthropic":
            return anthropic(error)
        case "openai":
            return OpenAIStreamError(OpenAIStreamMessage(**asdict(common), retryable=again))
        case "native":
            return StreamError(StreamMessage(common.message, common.type, error.status, again))


def openai(error: RametError) -> OpenAIMessage:
    kind, code = _type_and_code(error.status)
    return OpenAIMessage(str(error), kind, error.place or None, error.code or code)


def anthropic(error: RametError) -> AnthropicError:
    kind = "overloaded_error" if error.status == 503 else _type_and_code(error.status, "api_error")[0]
    details = AnthropicDetails(error.code) if error.code else UNSET
    return AnthropicError(AnthropicMessage(kind, str(error), details))


def _type_and_code(status: int, ours: str = "server_error") -> tuple[str, str | None]:
    return TYPES_AND_CODES.get(status, ("invalid_request_error" if status < 500 else ours, None))
