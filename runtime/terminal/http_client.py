"""Requests of commands to a server that runs: one place that decides where a key goes and what is said of a failure.

Redirects are not followed, for the key would go along. A proxy of the environment is used, but not to this machine. An
https server is checked against the system's certificates (SSL_CERT_FILE).
"""

import ssl
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

import msgspec

from ramet.runtime.errors import ConfigError, RametError
from ramet.runtime.terminal.visible import visible

MAX_ERROR = 16 << 10  # bytes of an error that are read
LOCAL = ("localhost", "127.0.0.1", "::1")
NOT_READABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # what decoding JSON of others may raise


class ServiceError(RametError):
    """The server refused, failed, sent what it must not, or cannot be reached. It may have words of others in it."""

    def __init__(self, text: str) -> None:
        super().__init__(visible(text))


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class ServerClient:
    """`url` may end in /v1. `key_names`: the options and variables that give a key, as errors name them."""

    def __init__(self, url: str, key: str, key_names: str) -> None:
        check_key(key, key_names)
        host = _host(url)
        self.base = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json", "User-Agent": "ramet"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._key_names, self._has_key = key_names, bool(key)
        self._opener = _opener(host)

    def open(self, path: str, body: bytes | None = None, timeout_s: float | None = None) -> HTTPResponse:
        """A POST if there is a body. Raises ServiceError."""
        try:
            request = Request(self.base + path, body, self._headers)
            answer: HTTPResponse = self._opener.open(request, timeout=timeout_s)
            return answer
        except HTTPError as error:
            with error:
                raise ServiceError(self._refusal(error)) from None
        except (OSError, HTTPException, UnicodeError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise ServiceError(f"no answer from {self.base}: {str(reason).strip()}") from None

    def read(self, path: str, limit: int, timeout_s: float | None = None) -> bytes:
        """All that a GET gives, of `limit` bytes at most. Raises ServiceError."""
        with self.open(path, None, timeout_s) as answer:
            try:
                data: bytes = answer.read(limit + 1)
            except (OSError, HTTPException) as error:
                raise lost(error) from None
            if len(data) > limit or answer.length:  # a read with a limit does not say that the end is missing
                fact = f"more than {limit} bytes" if len(data) > limit else f"{answer.length} bytes too few"
                raise ServiceError(f"{self.base + path} sent {fact}")
            return data

    def _refusal(self, error: HTTPError) -> str:
        if 300 <= error.code < 400:
            place = error.headers.get("Location")
            return f"HTTP {error.code}: {self.base} redirects to {place}, which is not followed: the key would go along"
        try:
            data = error.read(MAX_ERROR)
        except (OSError, HTTPException):
            data = b""
        message = error_message(data)
        if error.code == 401:
            fact = "does not take the key" if self._has_key else "needs a key, and none was given"
            return f"{self.base} {fact}: see {self._key_names}" + (f". It says: {message}" if message else "")
        message = message or f"HTTP {error.code}: {data[:300].decode(errors='replace')}"
        return f"{message} (see {self._key_names})" if error.code == 403 and self._has_key else message


def check_key(key: str, key_names: str) -> None:
    """Raises ConfigError for a key that a header cannot carry, or not whole."""
    if key != key.strip() or not (key.isascii() and key.isprintable()):
        fact = "the key has a space at an end, a line break or a character outside ASCII"
        raise ConfigError(f"{fact}: see {key_names}")


def lost(error: Exception) -> ServiceError:
    return ServiceError(f"the connection was lost: {error!r}")


def error_message(data: bytes) -> str:
    """What an error says, in the shapes that servers have; empty where it is none of them."""
    try:
        found = msgspec.json.decode(data)
    except NOT_READABLE:
        return ""
    inner = found.get("error") or found if isinstance(found, dict) else found
    message = inner.get("message") if isinstance(inner, dict) else inner
    return message if isinstance(message, str) else ""


def _host(url: str) -> str:
    """Raises ConfigError."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:  # of brackets or the port
        host = None
    if not host or parts.scheme not in ("http", "https") or " " in url or not url.isprintable():
        raise ConfigError(f"{url!r} is not the address of a server, must be like http://127.0.0.1:30000")
    return host


def _opener(host: str) -> OpenerDirector:
    handlers = [_NoRedirects(), HTTPSHandler(context=ssl.create_default_context())]
    return build_opener(*handlers, *([ProxyHandler({})] if host in LOCAL else []))
