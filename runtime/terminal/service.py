"""A chat's requests to a server of OpenAI's API: which models there are, and a reply as it comes.

Redirects are not followed, for the key would go along. A proxy of the environment is used, but not to this machine.
"""

import ssl
from collections.abc import Generator, Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

import msgspec

from ramet.runtime.errors import ConfigError, RametError

MAX_ERROR = 16 << 10  # bytes of an error that are read
MAX_LINE = 16 << 20  # bytes of one event
LOCAL = ("localhost", "127.0.0.1", "::1")


class ServiceError(RametError):
    """The server refused, failed or cannot be reached."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Service:
    """`url` may end in /v1. An https server is checked against the system's certificates (SSL_CERT_FILE)."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is no address of a server, must be like http://127.0.0.1:30000")
        self._base = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json", "User-Agent": "ramet-chat"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._opener = _opener(parts.hostname)

    def models(self) -> list[str]:
        """Their names, the server's own first."""
        with self._open("/v1/models") as answer:
            try:
                return [str(card["id"]) for card in msgspec.json.decode(answer.read(MAX_LINE))["data"]]
            except (msgspec.DecodeError, KeyError, TypeError) as error:
                raise ServiceError(f"{self._base}/v1/models has no list of models: {error!r}") from None

    def chunks(self, body: dict[str, Any]) -> Generator[dict[str, Any]]:
        """Of one reply. Leaving the loop closes the connection, which ends the request."""
        with self._open("/v1/chat/completions", {**body, "stream": True}) as answer:
            for line in _lines(answer):
                if not line.startswith(b"data:"):
                    continue  # a comment or the line between events
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                yield _chunk(data)
        raise ServiceError("the reply ended before its end")

    def _open(self, path: str, body: Any = None) -> HTTPResponse:
        data = None if body is None else msgspec.json.encode(body)
        try:
            answer: HTTPResponse = self._opener.open(Request(self._base + path, data, self._headers))
            return answer
        except HTTPError as error:
            with error:
                raise ServiceError(_message(error.read(MAX_ERROR), error.code)) from None
        except (URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise ServiceError(f"no answer from {self._base}: {reason}") from None


def _opener(host: str) -> OpenerDirector:
    handlers = [_NoRedirects(), HTTPSHandler(context=ssl.create_default_context())]
    return build_opener(*handlers, *([ProxyHandler({})] if host in LOCAL else []))


def _lines(answer: HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            line = answer.readline(MAX_LINE + 1)
        except (OSError, HTTPException) as error:
            raise ServiceError(f"the connection was lost: {error!r}") from None
        if not line:
            return
        if len(line) > MAX_LINE:
            raise ServiceError(f"a line of the reply is longer than {MAX_LINE} bytes")
        yield line


def _chunk(data: bytes) -> dict[str, Any]:
    try:
        chunk = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ServiceError(f"the reply is no JSON: {error}") from None
    if not isinstance(chunk, dict) or "error" in chunk:
        raise ServiceError(_message(data, 0))
    return chunk


def _message(data: bytes, status: int) -> str:
    """What an error says, in the shapes that servers have."""
    try:
        found = msgspec.json.decode(data)
        inner = found.get("error", found)
        return str(inner["message"] if isinstance(inner, dict) else inner)
    except (msgspec.DecodeError, AttributeError, KeyError):
        return f"HTTP {status}: {data[:300].decode(errors='replace')}"
