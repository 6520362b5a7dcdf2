"""What went wrong, in the shapes clients read: native, OpenAI's, Anthropic's, and inside a stream that has begun.

Decides status, type and wording. Knows no request. Section 1 (errors) of the native API and section 3 (error bodies).
"""

from typing import Any, Literal

import orjson
from aiohttp import web

from ramet.runtime.errors import ClientError, RametError, ServerError

CODES = {401: "invalid_api_key", 404: "not_found", 413: "request_too_large", 503: "server_overloaded", 504: "timeout"}
# what clients of OpenAI and Anthropic ask before they try again: a deadline would be missed again
RETRIES = {503: {"Retry-After": "1"}, 504: {"X-Should-Retry": "false"}}
ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
ANTHROPIC_PATH = "/v1/messages"
TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    503: "service_unavailable",
    504: "timeout_error",
}


def status_of(error: RametError) -> int:
    return error.status if isinstance(error, ClientError | ServerError) else 500


def type_of(status: int) -> str:
    return TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def shape_of(path: str) -> Literal["anthropic", "openai", "native"]:
    """Whose clients ask for this path."""
    if path == ANTHROPIC_PATH or path.startswith(ANTHROPIC_PATH + "/"):
        return "anthropic"
    return "openai" if path.startswith("/v1/") else "native"


def reply_to(path: str, error: RametError) -> web.Response:
    match shape_of(path):
        case "anthropic":
            return anthropic(error)
        case "openai":
            return openai(error)
        case "native":
            return native(error)


def native(error: RametError) -> web.Response:
    return reply({"error": {"message": str(error)}}, status_of(error))


def openai(error: RametError) -> web.Response:
    return reply({"error": openai_body(error)}, status_of(error))


def openai_body(error: RametError) -> dict[str, Any]:
    """`code` is a word or null, as OpenAI's clients declare it."""
    status = status_of(error)
    place, code = (error.place, error.code) if isinstance(error, ClientError) else ("", "")
    return {
        "message": str(error),
        "type": type_of(status),
        "param": place or None,
        "code": code or CODES.get(status),
    }


def anthropic(error: RametError) -> web.Response:
    return reply(anthropic_body(error), status_of(error))


def anthropic_body(error: RametError) -> dict[str, Any]:
    status = status_of(error)
    kind = ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    code = error.code if isinstance(error, ClientError) else ""
    details = {"details": {"error_code": code}} if code else {}
    return {"type": "error", "error": {"type": kind, "message": str(error), **details}}


def event(error: RametError) -> bytes:
    """The last event but [DONE] of a stream that cannot go on. Retryable: it may succeed later, or elsewhere."""
    status = status_of(error)
    body = {"message": str(error), "type": type_of(status), "code": status, "retryable": status >= 500}
    return b"data: " + orjson.dumps({"error": body}) + b"\n\n"


def openai_event(error: RametError) -> bytes:
    """As `event`, in OpenAI's shape."""
    body = {**openai_body(error), "retryable": status_of(error) >= 500}
    return b"data: " + orjson.dumps({"error": body}) + b"\n\n"


def reply(body: Any, status: int = 200) -> web.Response:
    headers = RETRIES.get(status, {})
    return web.Response(body=orjson.dumps(body), status=status, headers=headers, content_type="application/json")
