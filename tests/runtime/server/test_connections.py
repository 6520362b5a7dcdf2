"""Whatever a client does with its connection, it ends: headers and bodies that never come, replies nobody reads."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import orjson
import pytest
import uvloop

from ramet.ipc.messages import Abort, Generate, TokenStep
from ramet.runtime.server.http.connections import Connection
from ramet.runtime.server.http.freed_memory import TRIM_AFTER_S
from tests.fakes.clock_loop import forward
from tests.fakes.kept_memory import KeptMemory
from tests.fakes.peer import (
    HEADER_S,
    HEALTH,
    KEEP_ALIVE_S,
    TRANSFER_S,
    Peer,
    deaf,
    half_body,
    is_open,
    on_clock,
    post,
    turn,
    turn_loop,
)
from tests.fakes.server import Served


def test_half_a_header_ends_after_its_deadline_with_a_408() -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server, b"GET /health HTTP/1.1\r\nHos")
        await turn(server)
        forward(HEADER_S - 1)
        peer.send(b"t")  # a byte now and then makes no difference
        await turn(server)
        assert await is_open(peer)
        forward(2)
        status, headers, reply = await peer.reply()
        assert status == 408 and headers["connection"] == "close" and headers["x-request-id"]
        assert "header" in reply["error"]["message"] and "--header-timeout-s" in reply["error"]["message"]
        assert await peer.end() == b""

    on_clock(check)


def test_a_connection_without_a_byte_is_closed_in_silence() -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server)
        await turn(server)
        forward(HEADER_S + 1)
        assert await peer.end() == b""

    on_clock(check)


def test_a_connection_that_waits_for_its_next_request_is_closed_after_a_minute() -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server, HEALTH)
        await peer.reply()
        await turn(server)
        forward(KEEP_ALIVE_S - 1)
        peer.send(HEALTH)
        assert (await peer.reply())[0] == 200
        await turn(server)
        forward(KEEP_ALIVE_S - 1)
        await turn(server)
        assert await is_open(peer)
        forward(2)
        assert await peer.end() == b""

    on_clock(check)


def test_a_next_header_has_its_own_deadline() -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server, HEALTH)
        await peer.reply()
        await turn(server)
        forward(KEEP_ALIVE_S - 1)
        peer.send(HEALTH[:10])
        await turn(server)
        forward(2)  # the minute is over, but a request has begun
        await turn(server)
        assert await is_open(peer)
        peer.send(HEALTH[10:])
        assert (await peer.reply())[0] == 200
        peer.send(HEALTH[:10])
        await turn(server)
        forward(HEADER_S + 1)
        assert (await peer.reply())[0] == 408

    on_clock(check)


def test_a_handler_that_runs_has_no_deadline_for_a_header() -> None:
    async def check(server: Served) -> None:
        body = b'{"text": "a", "sampling_params": {"max_new_tokens": 1}}'
        whole = b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        peer = await Peer.of(server, whole + HEALTH[:10])
        await server.engine.saw(Generate)
        forward(1000)
        await turn(server)
        server.engine.step()
        assert (await peer.reply())[0] == 200

    on_clock(check, auto=False)


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions", "/v1/messages", "/abort_request"])
def test_half_a_body_ends_after_its_deadline_with_a_408_that_names_it(path: str) -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server, half_body(path))
        await turn(server)
        forward(TRANSFER_S - 1)
        peer.send(b"x")
        await turn(server)
        assert await is_open(peer)
        forward(2)
        status, headers, reply = await peer.reply()
        assert status == 408 and headers["connection"] == "close"
        assert reply["error"]["message"].startswith("body ")
        if path == "/v1/chat/completions":
            assert reply["error"]["param"] == "body"
        assert (reply.get("type") == "error") == (path == "/v1/messages")
        assert await peer.end() == b"" and server.engine.sent == []

    on_clock(check)


def test_a_slow_but_steady_upload_is_served() -> None:
    async def check(server: Served) -> None:
        body = orjson.dumps({"text": "a" * (4 << 20)})
        peer = await Peer.of(
            server, b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        piece = 512 << 10
        for at in range(0, len(body), piece):  # 17 kB/s: four minutes for what has a deadline of one
            peer.send(body[at : at + piece])
            await turn(server)
            forward(30)
        assert (await peer.reply())[0] == 200

    on_clock(check)


@pytest.mark.parametrize("path", ["/health", "/nowhere", "/v1/models"])
def test_half_a_body_that_nobody_reads_ends_as_well(path: str) -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server, half_body(path).replace(b"POST", b"GET"))
        await peer.reply()
        await turn(server)
        forward(TRANSFER_S)
        assert await peer.end() == b""

    on_clock(check)


@pytest.mark.parametrize(
    "path, body", [("/generate", {"text": "a"}), ("/v1/completions", {"prompt": "a"})], ids=["generate", "completions"]
)
def test_a_stream_that_nobody_reads_ends_and_its_sequence_is_aborted(path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        with deaf(server, post(path, {**body, "stream": True})):
            await server.engine.saw(Generate)
            server.engine.step([1])
            for _ in range(20):
                server.engine.tell(TokenStep([1], b"\0\0\0\0", texts=["x" * 50_000]))
                await turn(server)
            forward(TRANSFER_S - 1)
            await turn(server)
            assert server.engine.of_type(Abort) == []
            forward(60)  # what waits to be sent has a second for each 16 KiB
            (abort,) = await server.engine.saw(Abort)
            assert abort.uids == [1]
            assert server.client.requests.num_streams == 0

    on_clock(check, auto=False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", [Peer.stop_sending, Peer.close])
def test_a_client_that_stops_sending_is_one_that_has_gone(stop: Callable[[Peer], None], stream: bool) -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server, post("/generate", {"text": "a", "stream": stream}))
        await server.engine.saw(Generate)
        stop(peer)
        (abort,) = await server.engine.saw(Abort)
        assert abort.uids == [1]
        assert await peer.end() == b""

    on_clock(check, auto=False)


def test_a_stream_that_nobody_reads_is_freed_when_it_ends() -> None:
    """Not at a collection of cycles, which is rare."""

    async def check(server: Served) -> None:
        with deaf(server, post("/generate", {"text": "a", "stream": True})):
            await server.engine.saw(Generate)
            submission = weakref.ref(next(iter(server.client.requests.all)))
            for _ in range(20):
                server.engine.step([1])
                server.engine.tell(TokenStep([1], b"\0\0\0\0", texts=["x" * 50_000]))
                await turn(server)
            forward(TRANSFER_S + 60)
            (abort,) = await server.engine.saw(Abort)
            server.engine.abort(abort.uids, "gone")
            await turn(server)
            assert submission() is None

    gc.disable()
    try:
        on_clock(check, auto=False)
    finally:
        gc.enable()


def test_a_request_timeout_ends_a_stream_that_nobody_reads() -> None:
    async def check(server: Served) -> None:
        with deaf(server, post("/generate", {"text": "a", "stream": True})):
            await server.engine.saw(Generate)
            server.engine.step([1])
            server.engine.tell(TokenStep([1], b"\0\0\0\0", texts=["x" * 1_000_000]))
            await turn(server)
            forward(6)
            (abort,) = await server.engine.saw(Abort)
            assert abort.uids == [1]

    on_clock(check, auto=False, request_timeout_s=5)


@pytest.mark.parametrize("kept", [True, False], ids=["keep-alive", "close"])
def test_a_whole_reply_that_nobody_reads_is_given_up(kept: bool) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["x" * 1_000_000]
        request = post("/generate", {"text": "a"})
        with deaf(
            server, request if kept else request.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close")
        ) as peer:
            await server.engine.saw(Generate)
            await turn(server)
            forward(TRANSFER_S + 1_000_000 / (16 << 10) + 1)
            await turn(server)
            peer.settimeout(10)
            with pytest.raises(ConnectionResetError):
                while peer.recv(1 << 16):
                    pass

    on_clock(check)


@pytest.mark.parametrize("unread", [True, False], ids=["unread", "read"])
def test_memory_goes_back_when_a_client_leaves_that_did_not_read_its_reply(unread: bool) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["x" * 1_000_000 if unread else "x"]
        with deaf(server, post("/generate", {"text": "a"})):
            await server.engine.saw(Generate)
            await turn(server)
            memory, before = KeptMemory(), KeptMemory.resident()
        await turn(server)  # the client has left
        memory.free()
        forward(TRIM_AFTER_S)
        await turn_loop()
        assert memory.is_back(before) == unread

    on_clock(check)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_every_half_open_connection_ends_on_both_loops(loop: Any) -> None:
    async def check(server: Served) -> None:
        halves = [b"", b"GET /hea", half_body("/generate")]
        peers = [await Peer.of(server, half) for half in halves]
        kept = await Peer.of(server, HEALTH)
        await kept.reply()
        with deaf(server, post("/generate", {"text": "a", "stream": True})):
            await server.engine.saw(Generate)
            server.engine.step([1])
            server.engine.tell(TokenStep([1], b"\0\0\0\0", texts=["x" * 150_000]))
            silent, header, body, idle = [await peer.end() for peer in (*peers, kept)]
            assert silent == idle == b"" and b" 408 " in header and b" 408 " in body
            await server.engine.saw(Abort)

    on_clock(check, loop, auto=False, header_timeout_s=0.2, transfer_timeout_s=0.2, keep_alive_timeout_s=0.2)


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions"])
def test_a_client_that_goes_while_its_stream_is_written_is_no_error(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(server: Served) -> None:
        body = {"text": "a"} if path == "/generate" else {"messages": [{"role": "user", "content": "a"}]}
        peer = await Peer.of(server, post(path, {**body, "stream": True}))
        await server.engine.saw(Generate)
        server.engine.step()
        await peer.reader.readuntil(b"data: ")
        (connection,) = (each for each in gc.get_objects() if isinstance(each, Connection) and each.transport)
        server.engine.step()
        connection.transport.abort()  # as the kernel's word that the client has gone, in the turn that brings a token
        await peer.reader.read()
        await turn(server)
        assert not caplog.records

    on_clock(check, auto=False)
