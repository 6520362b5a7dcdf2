"""JSON over HTTP for backends: one session each, errors in words, and another try where a service asks for one.

Knows no API: paths, bodies and what they mean are the backends'. Everything runs on one event loop.
"""

import asyncio
import os
import random
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import orjson

from ramet.frontend.errors import BackendError
from ramet.frontend.loop import language_loop
from ramet.ipc.loop_thread import LoopThread

MAX_CONNECTIONS = 256  # of one backend; further calls wait
CONNECT_S = 30.0
TRIES = 8  # of a call that is refused because the service is busy
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 8.0  # between tries, doubled each time and drawn anew
BUSY = frozenset({408, 429, 502, 503, 504, 529})
MAX_SHOWN = 500  # characters of an answer that is an error
MAX_LINE = 1 << 26  # bytes of one event of a stream
LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError)


class HttpClient:
    """`name` stands in errors. `timeout_s`: of one try, until its answer is complete; None: no limit. `read`: JSON to
    its value; raises ValueError for what it cannot read.

    Its session is made with the first call, for the process that makes it.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        verify: bool = True,
        read: Callable[[bytes], Any] = orjson.loads,
    ) -> None:
        self._name, self._base, self._read = name, base_url.rstrip("/"), read
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        self._verify, self._proxy = verify, proxy_of(base_url)
        self._open: Open | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes a session of its own, in whatever process it is."""
        return {**vars(self), "_open": None}

    async def get(self, path: str) -> Any:
        return await self._asked("GET", path, None)

    async def post(self, path: str, body: Any = None) -> Any:
        """The answer's JSON. Raises BackendError."""
        return await self._asked("POST", path, body)

    async def post_once(self, path: str, body: Any) -> Any:
        """The same; a service that is busy is not asked again."""
        return await self._asked("POST", path, body, tries=1)

    async def tell(self, path: str) -> None:
        """POST; whatever the answer says. Raises BackendError for an error."""
        async with self._answer("POST", path, None):
            pass

    async def stream(self, path: str, body: Any) -> AsyncIterator[Any]:
        """The data of each server-sent event as JSON, until [DONE] or the end. Raises BackendError."""
        async with self._answer("POST", path, body) as answer:
            try:
                async for data in _events(answer.content):
                    yield self._json(data)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise self._failed(error) from error

    async def close(self) -> None:
        if self._open is not None:
            await self._open.session.close()

    async def _asked(self, method: str, path: str, body: Any, tries: int = TRIES) -> Any:
        async with self._answer(method, path, body, tries) as answer:
            try:
                text = await answer.read()
            except (aiohttp.ClientError, TimeoutError) as error:
                raise self._failed(error) from error
        return self._json(text) if text else None

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, body: Any, tries: int = TRIES
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One with status 200; where the service is busy, after further tries."""
        data = None if body is None else written(body)
        for wait_s in waits_s(tries):
            async with self._tried(method, path, data) as answer:
                if answer.status not in BUSY or wait_s is None:
                    if answer.status >= 400:
                        raise BackendError(self._name, await _message(answer), answer.status)
                    yield answer
                    return
                pause = pause_s(answer.headers, wait_s)
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def _tried(self, method: str, path: str, data: bytes | None) -> AsyncIterator[aiohttp.ClientResponse]:
        """Its time begins when a connection is free."""
        session, free, _ = self._opened()
        async with free, await self._sent(session, method, path, data) as answer:
            yield answer

    async def _sent(
        self, session: aiohttp.ClientSession, method: str, path: str, data: bytes | None
    ) -> aiohttp.ClientResponse:
        for again in (True, False):
            try:
                return await session.request(method, self._base + path, data=data, proxy=self._proxy)
            except LOST as error:  # perhaps a kept connection that the server closed meanwhile
                if not again or isinstance(error, aiohttp.ClientConnectorError):  # there was none
                    raise self._failed(error) from error
            except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: the session is closed
                raise self._failed(error) from error
        raise AssertionError("the second try returns or raises")

    def _opened(self) -> "Open":
        pid = os.getpid()
        if self._open is not None and self._open.pid != pid:  # after os.fork(): its sockets are the other process's
            self._open.session.detach()
            self._open = None
        if self._open is None:
            session = aiohttp.ClientSession(
                connector=Connector(limit=0, ssl=self._verify),  # `free` bounds them, outside of a try's time
                headers=self._headers,
                timeout=self._timeout,
                read_bufsize=MAX_LINE,
            )
            self._open = Open(session, asyncio.Semaphore(MAX_CONNECTIONS), pid)
            weakref.finalize(self, _close, language_loop(), session, pid)  # also when Python ends
        return self._open

    def _json(self, text: bytes) -> Any:
        try:
            return self._read(text)
        except ValueError:
            raise BackendError(self._name, f"its answer is not JSON: {text[:80]!r}") from None

    def _failed(self, error: BaseException) -> BackendError:
        what = "did not answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        return BackendError(self._name, f"{self._base}: {what}")


class Open(NamedTuple):
    """`free`: a permit for each connection that is not in use. `pid`: of the process whose session it is."""

    session: aiohttp.ClientSession
    free: asyncio.Semaphore
    pid: int


class Connector(aiohttp.TCPConnector):
    """In another process, after os.fork(), its end closes nothing: both would stop to watch the sockets."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pid = os.getpid()

    def __del__(self, *_: Any) -> None:
        if self._pid == os.getpid():
            super().__del__()


def proxy_of(url: str) -> str | None:
    """That of the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY); services of this machine are asked directly."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def written(value: Any) -> bytes:
    """The value as JSON."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # a schema may have integers beyond 64 bits, which orjson refuses
        return msgspec.json.encode(value)


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The data of each event; several lines of one are joined."""
    parts: list[bytes] = []
    async for line in content:
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            parts.append(line[5:].removeprefix(b" "))
        elif not line and parts:
            data, parts = b"\n".join(parts), []
            if data == b"[DONE]":
                return
            yield data
    if parts and parts != [b"[DONE]"]:
        yield b"\n".join(parts)


async def _message(answer: aiohttp.ClientResponse) -> str:
    """What an error's body says, in whichever of the usual shapes."""
    try:
        text = await answer.text(errors="replace")
    except (aiohttp.ClientError, TimeoutError):
        return answer.reason or "no reason was given"
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text[:MAX_SHOWN] or answer.reason or "no reason was given"
    while isinstance(value, dict | list) and value:
        if isinstance(value, list):
            value = value[0]
            continue
        value = next((value[name] for name in ("error", "message", "detail") if value.get(name)), None) or str(value)
    return str(value)[:MAX_SHOWN]


def error_of(name: str, error: Any) -> BackendError:
    """Of a stream, where the status is 200 already."""
    if not isinstance(error, Mapping):
        return BackendError(name, str(error))
    code = error.get("code")
    return BackendError(name, str(error.get("message")), code if isinstance(code, int) else 0)


def waits_s(tries: int = TRIES) -> Iterator[float | None]:
    """After each try of a call before the next one; None: it was the last."""
    wait_s = FIRST_WAIT_S
    for _ in range(tries - 1):
        yield wait_s
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
    yield None


def pause_s(headers: Mapping[str, str], wait_s: float) -> float:
    """Before another try: what the answer says, else about `wait_s`."""
    with suppress(KeyError, ValueError):
        return min(max(float(headers["Retry-After"]), 0.0), LONGEST_WAIT_S)
    return wait_s * random.uniform(0.5, 1.0)


def _close(loop: LoopThread, session: aiohttp.ClientSession, pid: int) -> None:
    if os.getpid() != pid:
        session.detach()
        return
    if loop.is_current() or threading.current_thread() is not threading.main_thread():
        loop.soon(lambda: asyncio.get_running_loop().create_task(session.close()))
        return
    with suppress(Exception):  # at the end of Python nobody minds
        loop.start(session.close()).result(timeout=1.0)
