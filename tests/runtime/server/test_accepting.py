"""Which connections are accepted: a limit with a 503, room by idle ones, and no end when descriptors run out."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable
from typing import Any

import pytest
import uvloop

from tests.fakes.clock_loop import ClockLoop, forward
from tests.fakes.peer import HEALTH, Peer, half_body, is_open, on_clock, turn, turn_loop
from tests.fakes.server import Served


def busy(server: Served) -> Awaitable[Peer]:
    """A connection that is not idle."""
    return Peer.of(server, half_body("/generate"))


@pytest.mark.parametrize("loop", [ClockLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_over_the_limit_gets_a_503_and_one_line(loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Served) -> None:
        first, _second = await busy(server), await busy(server)
        for _ in range(5):
            refused = await Peer.of(server, HEALTH)
            status, headers, reply = await refused.reply()
            assert status == 503 and headers["connection"] == "close" and headers["retry-after"]
            assert "--max-connections" in reply["error"]["message"]
            assert await refused.end() == b""
        assert len([record for record in caplog.records if "--max-connections" in record.getMessage()]) == 1
        first.send(b'xt": "a"}' + b" " * 100)
        await first.reply()
        first.close()
        await turn_loop()
        assert (await (await Peer.of(server, HEALTH)).reply())[0] == 200

    on_clock(check, loop, max_connections=2)


def test_a_flood_over_the_limit_is_closed_and_the_server_lives(caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Served) -> None:
        held = await busy(server)
        peers = [await Peer.of(server, HEALTH) for _ in range(300)]
        ends = await asyncio.gather(*(peer.end() for peer in peers), return_exceptions=True)
        assert sum(isinstance(end, bytes) and end.startswith(b"HTTP/1.1 503") for end in ends) > 0
        assert all(isinstance(end, bytes | ConnectionError) for end in ends)
        assert len(caplog.records) == 1
        held.close()
        await turn_loop()
        await turn(server)

    on_clock(check, max_connections=1)


def test_the_connection_that_is_idle_for_longest_makes_room() -> None:
    async def check(server: Served) -> None:
        oldest, newer = await Peer.of(server), await Peer.of(server)
        for peer in (newer, oldest, newer):
            peer.send(HEALTH)
            await peer.reply()
            forward(2)
            await turn_loop()
        working = await busy(server)
        assert await is_open(oldest) and await is_open(newer)
        fourth = await Peer.of(server, HEALTH)
        assert (await fourth.reply())[0] == 200
        assert await oldest.end() == b""
        assert await is_open(working)

    on_clock(check, max_connections=3)


def test_an_idle_connection_whose_next_request_may_be_on_its_way_is_kept() -> None:
    async def check(server: Served) -> None:
        fresh = await Peer.of(server, HEALTH)
        await fresh.reply()
        other = await Peer.of(server, HEALTH)
        assert (await other.reply())[0] == 503
        fresh.send(HEALTH)
        assert (await fresh.reply())[0] == 200

    on_clock(check, max_connections=1)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_connections_wait_while_descriptors_are_short_and_are_served_then(loop: str) -> None:
    """In a process of its own, which has no descriptor left for a while."""
    run = [sys.executable, "-c", WITHOUT_DESCRIPTORS, loop]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["200"] * 6
    assert done.stderr.count("\n") == 1 and "Too many open files" in done.stderr and "ulimit -n" in done.stderr


WITHOUT_DESCRIPTORS = """
import asyncio, logging, os, resource, socket, sys
import uvloop
from ramet.runtime.server.http import accepting
from tests.fakes.server import serving

accepting.RETRY_S = 0.0
HEALTH = b"GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"

class Said(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        said.set()

async def main():
    global said
    said = asyncio.Event()
    logging.getLogger().addHandler(Said())
    loop = asyncio.get_running_loop()
    async with serving() as server:
        status, _ = await server.get("/health")
        peers = [socket.socket() for _ in range(6)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        for peer in peers[:3]:
            peer.connect(("127.0.0.1", server.port))
            peer.send(HEALTH)
        await said.wait()
        for _ in range(50):  # it tries again meanwhile
            await asyncio.sleep(0)
        for each in held:
            os.close(each)
        for peer in peers[3:]:
            peer.connect(("127.0.0.1", server.port))
            peer.send(HEALTH)
        for peer in peers:
            peer.setblocking(False)
            print((await loop.sock_recv(peer, 1000)).split()[1].decode())
            peer.close()

factory = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[sys.argv[1]]
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(asyncio.wait_for(main(), 120))
"""


LIMITED = """
import json, logging, resource, sys
from ramet.runtime.config import ServeArgs
from ramet.runtime.server.http.accepting import allowed_connections, raise_descriptor_limit
logging.basicConfig(level=logging.INFO)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1024))
limit = raise_descriptor_limit()
print(json.dumps([limit, *(allowed_connections(ServeArgs(max_connections=n), limit) for n in (None, 100, 5000))]))
"""


def test_the_limit_of_open_files_is_raised_and_bounds_the_connections() -> None:
    run = [sys.executable, "-c", LIMITED]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    limit, default, asked, too_many = json.loads(done.stdout)
    assert limit == 1024 and asked == 100 and 800 < default == too_many < 1024 - 64
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["WARNING", "INFO", "WARNING"]
    assert "At most 100 connections at once" in done.stderr and "ulimit -n" in done.stderr
