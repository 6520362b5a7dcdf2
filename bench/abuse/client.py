"""One abusive client: bodies of one shape over many connections, at a steady rate, in a process of its own.

Run as a module, it reads a JSON object (the fields of `Attack`) from stdin and prints one (the fields of `Attacked`).
Because it has a process of its own, its work does not delay the streams that the bench times.
"""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ramet.bench.abuse.shapes import Body, body_of, plain
from ramet.bench.abuse.work import WORK
from ramet.bench.loop import run_fast

REPLY_WITHIN_S = 120.0
STATUS = slice(9, 12)  # the three digits of an HTTP status line


class Attack(Struct, frozen=True):
    """What one client does."""

    url: str
    shape: str
    size: int  # bytes of a body
    per_s: float  # bodies
    num: int  # bodies in all
    connections: int = 64
    control: bool = False  # send plain text instead: as many requests with as many bytes


class Attacked(Struct, frozen=True):
    """What an attack did and how it was answered."""

    num_sent: int
    mib_sent: float  # on the wire
    seconds: float
    slowest_s: float  # from the first byte of a body to the end of its reply
    statuses: dict[str, int]  # "gone": the server closed the connection without a status


async def attack(asked: Attack) -> Attacked:
    address = urlsplit(asked.url)
    requests = requests_of(asked, address.netloc)
    start, statuses, sent, slowest = time.perf_counter(), Counter[str](), 0, 0.0
    due = iter(range(asked.num))

    async def worker() -> None:
        nonlocal sent, slowest
        for index in due:
            wait_s = start + index / asked.per_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            request = requests[index % len(requests)]
            began = time.perf_counter()
            statuses[
                await asyncio.wait_for(_send(address.hostname or "", address.port or 80, request), REPLY_WITHIN_S)
            ] += 1
            sent += len(request)
            slowest = max(slowest, time.perf_counter() - began)

    await asyncio.gather(*(worker() for _ in range(asked.connections)))
    seconds = time.perf_counter() - start
    return Attacked(asked.num, round(sent / 2**20, 3), round(seconds, 3), round(slowest, 3), dict(statuses))


def requests_of(asked: Attack, host: str) -> list[bytes]:
    """The bytes of each request. Requests of WORK differ from each other, so that no cache answers them."""
    if asked.shape in WORK:
        make = WORK[asked.shape].control if asked.control else WORK[asked.shape].body
        return [as_bytes(make(i), host) for i in range(asked.num)]
    body = body_of(asked.shape, asked.size)
    return [as_bytes(plain(len(body.data)) if asked.control else body, host)]


def as_bytes(body: Body, host: str) -> bytes:
    lines = [f"POST {body.path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Connection: close"]
    lines += [f"Content-Length: {len(body.data)}", *(f"{name}: {value}" for name, value in body.headers), "", ""]
    return "\r\n".join(lines).encode() + body.data


async def _send(host: str, port: int, request: bytes) -> str:
    """Read the whole reply and return its status. A server may answer and close before it has read everything."""
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
    return head[STATUS].decode("ascii", "replace") or "gone"


def run(asked: Attack) -> "subprocess.Popen[bytes]":
    """Start the attack in another process. `figures` reads its result."""
    command = [sys.executable, "-P", "-m", "ramet.bench.abuse.client"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(asked))
    process.stdin.close()
    return process


def figures(process: "subprocess.Popen[bytes]") -> Attacked:
    """The result that the process prints. Waits for its end."""
    assert process.stdout is not None
    with process.stdout:
        return msgspec.json.decode(process.stdout.read(), type=Attacked)


def main() -> None:
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Attack)
    sys.stdout.buffer.write(msgspec.json.encode(run_fast(attack(asked))))


if __name__ == "__main__":
    main()
