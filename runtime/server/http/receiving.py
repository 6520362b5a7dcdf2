"""Receives a request's body: how long it may take, how large it may become, and when it is parsed.

Decides how much memory the bodies of all connections may hold together, and who waits for it (held_bodies.py). Large
bodies are inflated piece by piece; other requests are served in between, and while they are counted and parsed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import made_of
from ramet.runtime.intake.body_items import Bytes
from ramet.runtime.server.http.body_reader import BodyReader
from ramet.runtime.server.http.held_bodies import HeldBodies, HeldBody
from ramet.runtime.server.http.inflating import Inflater, coding_of
from ramet.runtime.workers.offload import LARGE, SMALL, Offload, offloaded

T = TypeVar("T")
MIN_BYTES_PER_S = 16 << 10  # a transfer that is always at least this fast never times out


class Bodies:
    """What the bodies of a server have in common. `max_bytes`: the limit on one body."""

    def __init__(self, max_bytes: int, held: HeldBodies, max_items: int, timeout_s: float) -> None:
        self.max_bytes, self.held, self.max_items, self.timeout_s = max_bytes, held, max_items, timeout_s
        self.offload = Offload()
        self.readers = BodyReader(), BodyReader()  # of each thread of `offload`

    async def closing(self, app: web.Application) -> AsyncIterator[None]:
        """For an application's cleanup_ctx."""
        yield
        for reader in self.readers:
            reader.close()
        self.offload.close()


BODIES = web.AppKey("bodies", Bodies)


def transfer_time(timeout_s: float, num_bytes: int) -> float:
    """How long a transfer of so many bytes may take, in seconds.

    The time grows with the bytes, so that a slow but steady upload of any size succeeds. Progress alone does not extend
    it: otherwise a client that sends a byte now and then would never time out.
    """
    return timeout_s + num_bytes / MIN_BYTES_PER_S


class ReceivedBody:
    """A body that has arrived, for as long as more may be made of it: a small one as its object, a large one as bytes.

    Bytes take less memory than whatever is made of them, and each reading is done in the process that reads bodies.
    """

    def __init__(self, bodies: Bodies, body: Bytes) -> None:
        self._bodies, self._body = bodies, body
        self._written: dict[str, Any] | None = None  # of a small one, once it was read

    async def read(self, make: Callable[[dict[str, Any]], T]) -> T:
        """What `make`, which leaves the object as it is, makes of the body as a JSON object.

        Raises what `make` raises, and ClientError.
        """
        size, max_items = len(self._body), self._bodies.max_items
        if size > SMALL:
            return await offloaded(partial(self._bodies.readers[size > LARGE].read, make, self._body, max_items))
        if self._written is None:
            self._written = made_of(dict, self._body, max_items)
        return make(self._written)


async def received(request: web.Request, make: Callable[[dict[str, Any]], T], empty: bytes = b"") -> T:
    """What `make` makes of the body as a JSON object, on a thread if it is large: see ramet/runtime/workers/offload.py.

    `empty` stands for a body without any byte. Raises what `make` raises, and ClientError: 413 if the body is too
    large, 415 for a coding that is not taken, 408 if it takes too long, else 400.
    """
    made, _ = await received_with_body(request, make, empty)
    return made


async def received_with_body(
    request: web.Request, make: Callable[[dict[str, Any]], T], empty: bytes = b""
) -> tuple[T, ReceivedBody]:
    """As `received`, and the body, of which more may be made later. Its memory counts only for the first reading."""
    bodies, coding = request.app[BODIES], coding_of(request)
    if (size := request.content_length or 0) > bodies.max_bytes:
        raise _too_large(bodies, f"has {size} bytes")
    content = request.content
    if coding is None and content.is_eof() and content.total_bytes <= min(SMALL, bodies.max_bytes):
        data = content.read_nowait() or empty  # it has arrived already, as most bodies have
        return await _made(bodies, data, make)
    with bodies.held.opened(OWNER.get().bounded, request.content_length if coding is None else None) as held:
        with _errors_of(request, held):
            body = await _read(request, bodies, coding, held)
        held.deadline = None
        return await _made(bodies, body or empty, make)


@contextmanager
def _errors_of(request: web.Request, held: HeldBody) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        held.check()
        fact = f"did not arrive in time: {request.content.total_bytes} bytes came"
        raise ClientError("body", fact, "--transfer-timeout-s", 408) from error
    except web.RequestPayloadError as error:
        raise ClientError("body", f"cannot be read: {' '.join(str(error).split())}") from error


async def _read(request: web.Request, bodies: Bodies, coding: str | None, held: HeldBody) -> bytearray:
    """Read the whole body. `request.read()` would have no deadline that moves with the bytes."""
    body, inflater, content = bytearray(), None if coding is None else Inflater(coding), request.content
    async with asyncio.timeout(bodies.timeout_s) as deadline:
        held.deadline = deadline
        while piece := await content.readany():
            with held.taking():
                for part in [piece] if inflater is None else inflater.pieces(piece):
                    if len(body) + len(part) > bodies.max_bytes:
                        raise _too_large(bodies, "has more bytes" if inflater is None else "inflates to more bytes")
                    await held.grow(len(part))
                    body += part
                    if inflater is not None:
                        await asyncio.sleep(0)
            num_bytes = max(content.total_bytes, len(body))
            deadline.reschedule(held.began_s + transfer_time(bodies.timeout_s, num_bytes))
    if inflater is not None:
        inflater.end()
    return body


async def _made(bodies: Bodies, body: Bytes, make: Callable[[dict[str, Any]], T]) -> tuple[T, ReceivedBody]:
    bodies.offload.take(OWNER.get().bounded, len(body))
    whole = ReceivedBody(bodies, body)
    return await whole.read(make), whole


def _too_large(bodies: Bodies, fact: str) -> ClientError:
    most = f"{bodies.max_bytes} (--max-body-mb {round(bodies.max_bytes / (1 << 20), 3):g})"
    return ClientError("body", f"{fact}, must have at most {most}", status=413)
