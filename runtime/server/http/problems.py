"""Errors as replies and as events of a stream, in the shapes of the native, OpenAI's and Anthropic's clients.

Decides status, type and code. Section 1 (errors) of the native API and section 3 (error bodies).
"""

from typing import Literal

from aiohttp import web
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from ramet.runtime.errors import ClientError, RametError, ServerError
from ramet.runtime.reply import Reply
from ramet.runtime.server.http.exchange import respond

CODES = {401: "invalid_api_key", 404: "not_found", 413: "request_too_large", 503: "server_overloaded", 504: "timeout"}
# clients of OpenAI and Anthropic read these before they try again: a deadline would be missed again
RETRIES = {503: {"Retry-After": "1"}, 504: {"X-Should-Retry": "false"}}
TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    503: "service_unavailable",
    504: "timeout_error",
}
ANTHROPIC_TYPES = TYPES | {503: "overloaded_error"}
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


def status_of(error: RametError) -> int:
    return error.status if isinstance(error, ClientError | ServerError) else 500


def type_of(status: int) -> str:
    return TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def code_of(error: RametError) -> str:
    return error.code if isinstance(error, ClientError) else ""


def shape_of(path: str) -> Literal["anthropic", "openai", "native"]:
    """The shape of errors under this path."""
    if path == ANTHROPIC_PATH or path.startswith(ANTHROPIC_PATH + "/"):
        return "anthropic"
    return "openai" if path.startswith("/v1/") else "native"


def reply_to(path: str, error: RametError) -> web.Response:
    status = status_of(error)
    return respond(_error(path, error), status, RETRIES.get(status))


def _error(path: str, error: RametError) -> Error:
    match shape_of(path):
        case "anthropic":
            return anthropic(error)
        case "openai":
            return OpenAIError(openai(error))
        case "native":
            return NativeError(NativeMessage(str(error)))


def openai(error: RametError) -> OpenAIMessage:
    status = status_of(error)
    place = error.place if isinstance(error, ClientError) else ""
    return OpenAIMessage(str(error), type_of(status), place or None, code_of(error) or CODES.get(status))


def anthropic(error: RametError) -> AnthropicError:
    status, code = status_of(error), code_of(error)
    kind = ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return AnthropicError(AnthropicMessage(kind, str(error), AnthropicDetails(code) if code else UNSET))


def in_stream(error: RametError) -> StreamError:
    status = status_of(error)
    return StreamError(StreamMessage(str(error), type_of(status), status, retryable=status >= 500))


def openai_in_stream(error: RametError) -> OpenAIStreamError:
    return OpenAIStreamError(OpenAIStreamMessage(**asdict(openai(error)), retryable=status_of(error) >= 500))
