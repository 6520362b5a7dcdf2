"""One abusive client: bodies of one shape over many connections, at a steady rate, in a process of its own (ready.py).

Because bodies are made before a window begins, and in another process, its work does not delay the streams that the
bench times.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable
from urllib.parse import urlsplit

from msgspec import Struct

from ramet.bench.abuse.bodies import AbusiveBody, plain
from ramet.bench.abuse.heavy import HEAVY
from ramet.bench.abuse.ready import ServerReady, serve
from ramet.bench.abuse.shapes import body_of
from ramet.bench.abuse.work import WORK
from ramet.bench.loop import run_fast

MODULE = "ramet.bench.abuse.client"
AGES_S = 1e6  # JSON has no infinity
REPLY_WITHIN_S = 120.0
STATUS = slice(9, 12)  # the three digits of an HTTP status line
LATE, GONE = "late", "gone"
MAX_SAID = 160  # characters of a refusal that are kept
_MESSAGE = re.compile(rb'"message":\s*"((?:[^"\\]|\\.)*)')


class Attack(Struct, frozen=True):
    """What one client does."""

    url: str
    shape: str
    size: int  # bytes of a body
    per_s: float  # bodies
    num: int  # bodies in all
    connections: int = 64
    control: bool = False  # send plain text instead: as many requests with as many bytes, or the same work in many
    sends_s: float = AGES_S  # no body is begun later
    lasts_s: float = AGES_S  # afterwards connections are closed, answered or not


class Attacked(Struct, frozen=True):
    """What an attack did and how it was answered."""

    num_sent: int
    mib_sent: float  # on the wire
    seconds: float
    slowest_s: float  # from the first byte of a body to the end of its reply
    cpu_s: float  # of the client itself
    statuses: dict[str, int]  # GONE: the server closed the connection without a status; LATE: no answer in time
    said: dict[str, str] = {}  # the first message of each status


async def attack(asked: Attack, requests: list[bytes]) -> Attacked:
    address = urlsplit(asked.url)
    start, statuses, said = time.perf_counter(), Counter[str](), dict[str, str]()
    num_sent, sent, slowest, used = 0, 0, 0.0, time.process_time()
    end, last_begin = start + asked.lasts_s, start + min(asked.sends_s, asked.lasts_s)
    due = iter(range(asked.num))

    async def worker() -> None:
        nonlocal num_sent, sent, slowest
        for index in due:
            if (due_at := start + index / asked.per_s) >= last_begin:
                break
            await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
            began = time.perf_counter()
            if began >= last_begin:
                break
            request = requests[index % len(requests)]
            sending = _send(address.hostname or "", address.port or 80, request)
            try:
                status, text = await asyncio.wait_for(sending, min(REPLY_WITHIN_S, end - began))
            except TimeoutError:
                status, text = LATE, ""
            statuses[status] += 1
            said.setdefault(status, text)
            num_sent += 1
            sent += len(request)
            slowest = max(slowest, time.perf_counter() - began)

    await asyncio.gather(*(worker() for _ in range(asked.connections)))
    seconds, messages = time.perf_counter() - start, {status: text for status, text in said.items() if text}
    return Attacked(
        num_sent, round(sent / 2**20, 3), round(seconds, 3), round(slowest, 3), time.process_time() - used,
        dict(statuses), messages,
    )  # fmt: skip


def requests_of(asked: Attack) -> list[bytes]:
    """The bytes of each request. Requests of WORK differ from each other, so that no cache answers them."""
    host = urlsplit(asked.url).netloc
    if asked.shape in WORK:
        make = WORK[asked.shape].control if asked.control else WORK[asked.shape].body
        return [as_bytes(make(i), host) for i in range(asked.num)]
    if asked.shape in HEAVY:
        heavy = HEAVY[asked.shape]
        return [
            as_bytes(body, host) for body in (heavy.control(asked.size) if asked.control else [heavy.body(asked.size)])
        ]
    body = body_of(asked.shape, asked.size)
    return [as_bytes(plain(len(body.data)) if asked.control else body, host)]


def as_bytes(body: AbusiveBody, host: str) -> bytes:
    lines = [f"POST {body.path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Connection: close"]
    lines += [f"Content-Length: {len(body.data)}", *(f"{name}: {value}" for name, value in body.headers), "", ""]
    return "\r\n".join(lines).encode() + body.data


async def _send(host: str, port: int, request: bytes) -> tuple[str, str]:
    """The status of a reply and its message. A server may answer and close before it has read everything."""
    head = b""
    writer = None
    try:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request)
        while piece := await reader.read(1 << 16):
            head = head or piece
    except OSError:
        pass  # what arrived before the error counts
    finally:
        if writer is not None:
            writer.transport.abort()
    message = _MESSAGE.search(head)
    said = message[1].decode("utf-8", "replace")[:MAX_SAID] if message else ""
    return head[STATUS].decode("ascii", "replace") or GONE, said


async def run(asked: Attack) -> Attacked:
    """A whole attack, from the making of its bodies to its end."""
    client = await asyncio.to_thread(ServerReady, MODULE, asked, Attacked)
    client.go()
    return await asyncio.to_thread(client.answer)


def attacking(asked: Attack) -> Callable[[], Attacked]:
    """Makes the bodies."""
    requests = requests_of(asked)
    return lambda: run_fast(attack(asked, requests))


if __name__ == "__main__":
    serve(Attack, attacking)
