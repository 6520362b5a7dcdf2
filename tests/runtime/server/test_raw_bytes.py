"""Bytes that are no request, or only look like one: JSON or a close, one line in the log, and a server that goes on."""

import asyncio
import gc
import json
import logging
import random
import re

import pytest
from samples import slow

from ramet.runtime.server.http.connections import Connection
from tests.fakes.clock_loop import forward
from tests.fakes.peer import HEADER_S, HEALTH, Peer, half_body, on_clock, post, turn, turn_loop
from tests.fakes.server import Served

# bytes, status of the reply
MALFORMED = [
    (b"GARBAGE\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00", 400), (b"\x00" * 64, 400), (b"GET\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400), (b"GET / HTTP/9.9\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nNo colon\r\n\r\n", 400),
    (b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    (b"POST /generate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 20_000 + b"\r\n\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"b" * 20_000, 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"A%d: 1\r\n" % i for i in range(300)) + b"\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nExpect: foo\r\n\r\n", 417),
    (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
]  # fmt: skip


@pytest.mark.parametrize("data, expected", MALFORMED, ids=lambda value: str(value)[:40])
def test_bytes_that_are_no_request_get_a_json_error_and_one_line(
    data: bytes, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(server: Served) -> None:
        caplog.set_level(logging.INFO)
        peer = await Peer.of(server, data)
        status, headers, reply = await peer.reply()
        assert status == expected and headers["content-type"] == "application/json" and headers["x-request-id"]
        assert set(reply) == {"error"} and 0 < len(reply["error"]["message"]) < 400
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
        assert len(lines) == (status not in (404, 417)) and not any("\n" in line for line in lines)
        assert not [record for record in caplog.records if record.exc_info]
        status, _ = await server.get("/health")
        assert status == 200

    on_clock(check)


def test_a_client_that_still_sends_reads_why_its_header_was_refused() -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: ")
        for _ in range(64):
            peer.send(b"a" * 65536)
            await turn_loop()
        assert (await peer.reply())[0] == 431

    on_clock(check)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_a_broken_chunk_of_a_body_is_a_400_at_once(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Served) -> None:
        chunked = (
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" % path.encode()
        )
        peer = await Peer.of(server, chunked)
        await turn(server)
        peer.send(b"zz\r\nabc\r\n")
        status, headers, reply = await peer.reply()
        assert status == 400 and headers["connection"] == "close"
        assert reply["error"]["message"].startswith("body cannot be read")
        assert await peer.end() == b""
        assert not [record for record in caplog.records if record.exc_info]

    on_clock(check)


def test_a_refused_connection_is_freed_when_it_ends() -> None:
    """Not at a collection of cycles, which is rare."""

    async def check(server: Served) -> None:
        peer = await Peer.of(server, b"GARBAGE\r\n\r\n")
        await peer.reply()
        peer.close()
        await turn(server)
        await turn(server)
        assert len([each for each in gc.get_objects() if isinstance(each, Connection)]) <= 1  # of the last turn

    gc.collect()
    gc.disable()
    try:
        on_clock(check)
    finally:
        gc.enable()


PIECES = [
    b"GET", b"POST", b" ", b"/generate", b"/v1/completions", b"/health", b"/v1/messages", b"*", b" HTTP/1.1",
    b"\r\n", b"\n", b"\r",
    b"Host: localhost\r\n", b"Content-Length: 3\r\n", b"Content-Length: 99\r\n",
    b"Content-Length: x\r\n", b"\r\n\r\n", b"abc",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
    b"3\r\nabc\r\n", b"0\r\n\r\n", b"-1\r\n",
    b"Content-Encoding: gzip\r\n", b"Connection: keep-alive\r\n", b"Connection: close\r\n", b"Upgrade: websocket\r\n",
    b"Connection: upgrade\r\n", b"Sec-WebSocket-Key1: a\r\n", b"Expect: 100-continue\r\n", b"Expect: x\r\n",
    b": ", b"\x00",
    b"\xff\xfe", b"\x80", b"a" * 9000, b"%00", b"?a=%ff", b"#", b"//", b"http://", b"X: \x01\r\n", b" folded\r\n",
    b'{"text": "a"}',
]  # fmt: skip
WHOLE = [post("/generate", {"text": "a"}), post("/v1/completions", {"prompt": "a"}), HEALTH, half_body("/v1/messages")]


def noise(draw: random.Random) -> bytes:
    """Bytes that look like a request, more or less."""
    match draw.randrange(4):
        case 0:
            return draw.randbytes(draw.randint(1, 200))
        case 1:
            return b"".join(draw.choices(PIECES, k=draw.randint(1, 24)))
        case 2:
            head = draw.choices(PIECES, k=draw.randint(0, 8))
            return b"POST /generate HTTP/1.1\r\nHost: localhost\r\n" + b"".join(head) + b"\r\n" + draw.choice(PIECES)
    data = bytearray(b"".join(draw.choices(WHOLE, k=draw.randint(1, 3))))
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data))
        data[at : at + draw.randint(0, 3)] = draw.choice([draw.randbytes(1), draw.choice(PIECES)])
    return bytes(data)


def json_replies(data: bytes) -> int:
    """How many whole replies these bytes are; each must have a body of JSON."""
    num = 0
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        assert re.match(rb"HTTP/[0-9]\.[0-9] [1-5][0-9][0-9] ", head), data[:200]  # of the version that was asked for
        if b" 100 Continue" in head:
            data = rest
            continue
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
        assert isinstance(json.loads(rest[:length]), dict)
        data, num = rest[length:], num + 1
    return num


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *(slow(seed) for seed in range(4, 54))])
def test_any_bytes_get_json_or_a_close_and_harm_nobody(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """200 connections for each seed, some of which send their bytes in two pieces."""

    async def one(server: Served, data: bytes, cut: int, sent: asyncio.Barrier) -> int:
        peer = await Peer.of(server, data[:cut])
        await turn(server)
        peer.send(data[cut:])
        await turn(server)
        await sent.wait()
        return json_replies(await peer.end())

    async def check(server: Served) -> None:
        draw = random.Random(seed)
        cases = [noise(draw) for _ in range(200)]
        sent = asyncio.Barrier(len(cases) + 1)
        ends = [asyncio.create_task(one(server, each, draw.randint(0, len(each)), sent)) for each in cases]
        await sent.wait()
        while not all(end.done() for end in ends):  # whatever is half open ends by its deadline
            forward(HEADER_S + 1)
            await turn(server)
        assert sum(end.result() for end in ends) > len(cases) / 2
        assert not [record.getMessage() for record in caplog.records if record.exc_info or record.levelname == "ERROR"]
        assert server.client.num_open == server.client.num_waiting == 0
        assert (await server.post("/generate", {"text": "a"}))[0] == 200

    on_clock(check)
