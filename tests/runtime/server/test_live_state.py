"""The live state over HTTP: one question for all viewers, changes, and what slow or many viewers can take."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from ramet.ipc.control import MatchPrefix, Unwatch, Watch
from ramet.ipc.live import NodeRow, SequenceRow
from ramet.ipc.messages import Detokenize, PeerDied, Tokenize
from ramet.ipc.stats import Stats
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.server.live import feed
from ramet.runtime.server.live.history import COLUMNS, SAMPLES, History, quantile
from tests.fakes.engine import live_state
from tests.fakes.manual_clock import ManualClock
from tests.fakes.server import Served, served, serving

ROW = NodeRow(1, 0, 1, 40, 5, 0)
BELOW = NodeRow(2, 1, 1, 3, 6, 1)
TOO_LONG = "a" * ((1 << 20) + 1)
USER, ADMIN = {"Authorization": "Bearer user"}, {"Authorization": "Bearer admin"}


@asynccontextmanager
async def looking(server: Served, **options: Any) -> AsyncIterator[Any]:
    """`await anext(…)` of what is yielded is the next event."""
    async with server.http.get("/ui/live", **options) as response:
        assert response.status == 200, await response.text()
        yield events_of(response.content)


async def events_of(stream: asyncio.StreamReader) -> AsyncIterator[Any]:
    name = ""
    async for line in stream:
        if line.startswith(b"event: "):
            name = line[7:-1].decode()
        if line.startswith(b"data: "):
            assert name == "state"
            yield json.loads(line[6:])


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler is asked again as soon as it has answered."""
    monkeypatch.setattr(feed, "ASK_EVERY_S", 0.0)


@pytest.mark.usefixtures("at_once")
class TestViewers:
    def test_a_stream_begins_with_everything_and_goes_on_with_changes(self) -> None:
        async def check(server: Served) -> None:
            server.engine.auto_answer = False
            async with looking(server) as events:
                (asked,) = await server.engine.saw(Watch)
                assert asked.begins
                answer(server, 1, live_state([ROW]))
                first = (await anext(events))["state"]["tree"]
                assert first["begins"] and first["nodes"] == [[1, 0, 1, 40, 5, 0]]
                assert not (await server.engine.saw(Watch, 2))[1].begins
                answer(server, 2, live_state([BELOW], begins=False))
                second = (await anext(events))["state"]["tree"]
                assert not second["begins"] and second["nodes"] == [[2, 1, 1, 3, 6, 1]]

        served(check)

    def test_a_later_viewer_gets_everything_and_asks_nothing(self) -> None:
        async def check(server: Served) -> None:
            server.engine.auto_answer = False
            async with looking(server) as events:
                await server.engine.saw(Watch)
                answer(server, 1, live_state([ROW]))
                await anext(events)
                await server.engine.saw(Watch, 2)
                async with looking(server) as others:
                    told = (await anext(others))["state"]["tree"]
                    assert told["begins"] and told["nodes"] == [[1, 0, 1, 40, 5, 0]]
                    assert len(server.engine.of_type(Watch)) == 2

        served(check)

    def test_nobody_is_asked_when_nobody_looks(self) -> None:
        async def check(server: Served) -> None:
            async with looking(server) as events:
                await anext(events)
            await server.engine.saw(Unwatch)
            num = len(server.engine.of_type(Watch))
            await server.get("/health")
            assert len(server.engine.of_type(Watch)) == num

        served(check)

    def test_whoever_looks_again_gets_everything(self) -> None:
        async def check(server: Served) -> None:
            for _ in range(2):
                async with looking(server) as events:
                    assert (await anext(events))["state"]["tree"]["begins"]
                await server.engine.saw(Unwatch)
            begun = [message for message in server.engine.of_type(Watch) if message.begins]
            assert len(begun) >= 2

        served(check)

    def test_a_waiting_request_has_the_id_that_its_client_knows(self) -> None:
        async def check(server: Served) -> None:
            server.engine.auto = False
            asking = asyncio.create_task(server.post("/generate", {"text": "a", "rid": "mine"}))
            while not server.engine.running:
                await asyncio.sleep(0)
            (uid,) = server.engine.running
            row = SequenceRow(uid, "", "waiting", "no memory", 1.5, 0, 4, 0, 0, 0, 0, 0)
            server.engine.live = live_state([], waiting=(row, replace(row, uid=999)))
            async with looking(server) as events:
                waiting = (await anext(events))["state"]["waiting"]
            assert [(each["rid"], each["reason"]) for each in waiting] == [("mine", "no memory"), ("", "no memory")]
            server.engine.step()
            asking.cancel()

        served(check)

    def test_no_more_than_so_many_are_served(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def check(server: Served) -> None:
            async with looking(server), looking(server) as last:
                await anext(last)
                status, reply = await server.get("/ui/live")
                assert status == 503 and "look at the live state already" in reply["error"]["message"]

        monkeypatch.setattr(feed, "MAX_VIEWERS", 2)
        served(check)

    def test_a_viewer_that_does_not_read_misses_changes_and_gets_everything_after(self) -> None:
        async def check(server: Served) -> None:
            num, rows = 40, [NodeRow(i, 0, 1, 10_000_000 + i, 10_000_000, 0) for i in range(1, 20_001)]
            silent = await never_reading(server)
            server.engine.auto_answer = False
            for i in range(1, num + 1):
                await server.engine.saw(Watch, i)
                answer(server, i, live_state(rows, begins=i == 1))
            reader, _ = await asyncio.open_connection(sock=silent, limit=1 << 24)
            size, versions = 0, list[tuple[int, bool]]()
            async for line in reader:
                size += len(line)
                if line.startswith(b"data: "):
                    told = json.loads(line[6:])
                    versions.append((told["version"], told["state"]["tree"]["begins"]))
                if versions and versions[-1][0] == num:
                    break
            assert versions[-1] == (num, True) and len(versions) < num - 5, versions
            assert size < 0.8 * num * len(line)

        served(check, timeout_s=60)

    def test_streams_end_with_the_engine(self) -> None:
        async def check(server: Served) -> None:
            async with looking(server) as events:
                await anext(events)
                server.engine.auto_answer = False
                server.engine.tell(PeerDied("scheduler", 1))
                with pytest.raises(StopAsyncIteration):
                    while True:
                        await anext(events)

        served(check)


async def never_reading(server: Served) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
    await asyncio.get_running_loop().sock_sendall(sock, b"GET /ui/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return sock


def answer(server: Served, number: int, state: Any) -> None:
    server.engine.live = state
    server.engine.answer(server.engine.of_type(Watch)[number - 1])


def test_streams_end_when_the_server_stops():
    started = asyncio.Event()

    async def read(port: int) -> None:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http, http.get("/ui/live") as response:
            async for _ in response.content:
                started.set()

    async def main() -> None:
        async with serving() as server:
            reading = asyncio.create_task(read(server.port))
            await started.wait()
        await reading  # raises where a stream was cut off

    asyncio.run(asyncio.wait_for(main(), 120))


def test_without_the_page_there_are_none_of_its_endpoints():
    async def check(server: Served) -> None:
        for path in ("/ui/live", "/ui/history"):
            assert (await server.get(path))[0] == 404
        for path, body in (("/ui/prefix", {"text": "a"}), ("/ui/node", {"node": 1})):
            assert (await server.post(path, body))[0] == 404

    served(check, ui=False)


def test_the_text_of_a_node_takes_the_admin_key():
    async def check(server: Served) -> None:
        assert (await server.post("/ui/node", {"node": 1}, headers=USER))[0] == 403
        status, reply = await server.post("/ui/node", {"node": 1}, headers=ADMIN)
        assert status == 200 and reply == {"node": 1, "text": "Hi", "num_tokens": 2, "is_cut": False}
        assert not server.engine.of_type(Detokenize)[0].skip_special_tokens
        assert (await server.get("/ui/history", headers=ADMIN))[0] == 200
        assert (await server.get("/ui/history", headers=USER))[0] == 403
        assert (await server.get("/ui/history"))[0] == 401

    served(check, api_key="user", admin_api_key="admin")


@pytest.mark.parametrize("node", [0, -1, 1 << 70])
def test_a_node_is_named_by_a_number_from_one_on(node: int):
    async def check(server: Served) -> None:
        status, reply = await server.post("/ui/node", b'{"node": %d}' % node)
        assert status == 400 and "node" in reply["error"]["message"]

    served(check)


def test_a_node_that_is_gone_is_not_found():
    async def check(server: Served) -> None:
        assert (await server.post("/ui/node", {"node": 2}))[0] == 404

    served(check)


def test_a_search_takes_a_text_or_its_ids():
    async def check(server: Served) -> None:
        found = {"num_tokens": 5, "cached_tokens": 3, "reused_tokens": 3, "path": [[1, 3]]}
        assert await server.post("/ui/prefix", {"text": "hello"}) == (200, found)
        assert server.engine.of_type(Tokenize)[0].add_special_tokens
        assert await server.post("/ui/prefix", {"input_ids": list(b"hello")}) == (200, found)
        first, second = server.engine.of_type(MatchPrefix)
        assert first.ids == second.ids

    served(check)


@pytest.mark.parametrize(
    "body",
    [{}, {"text": "a", "input_ids": [1]}, {"input_ids": [512]}, {"input_ids": []}, {"text": TOO_LONG}],
)
def test_a_search_refuses_what_is_no_prompt(body: dict[str, Any]):
    async def check(server: Served) -> None:
        assert (await server.post("/ui/prefix", body))[0] == 400
        assert not server.engine.of_type(MatchPrefix)

    served(check)


def test_a_head_of_the_stream_ends():
    async def check(server: Served) -> None:
        async with server.http.head("/ui/live") as response:
            assert response.status == 200
        assert (await server.get("/health"))[0] == 200 and not server.engine.of_type(Watch)

    served(check)


class TestHistory:
    def test_a_column_has_an_entry_for_each_sample(self) -> None:
        async def check(server: Served) -> None:
            status, reply = await server.get("/ui/history")
            assert status == 200 and reply["interval_s"] == 1.0 and tuple(reply["columns"]) == COLUMNS
            assert len({len(values) for values in reply["columns"].values()}) == 1
            assert reply["columns"]["first_token_p50_s"][0] is None  # nothing has run

        served(check)

    def test_rates_are_differences_of_totals(self) -> None:
        clock, metrics = ManualClock(), Metrics()
        stats = [Stats(steps=10, evicted_tokens=3, phase_seconds={"forward": 1.0})]
        history = History(metrics, lambda: stats[0], clock)
        history.sample()
        clock.advance(2.0)
        metrics.generated_tokens.add(100)
        metrics.timing.token_gap_s.observe(0.0015, 9)
        stats[0] = Stats(steps=20, evicted_tokens=7, phase_seconds={"forward": 1.5}, lookups=4)
        history.sample()
        row = history.newest
        assert (row["generated_per_s"], row["evicted_per_s"], row["steps_per_s"]) == (50, 2, 5)
        assert (row["forward_ms"], row["batch_tokens"], row["lookups"]) == (50, 10, 4)
        assert 0.001 < row["gap_p50_s"] < row["gap_p99_s"] < 0.002

    def test_an_hour_is_kept_and_no_more(self) -> None:
        clock = ManualClock()
        history = History(Metrics(), Stats, clock)
        size = len(history._rows) * 8
        for _ in range(SAMPLES + 7):
            clock.advance(1.0)
            history.sample()
        times = [time for part in history.columns()["time_s"].parts for time in part]
        assert len(times) == SAMPLES and times[0] == 108.0 and times[-1] == clock()
        assert len(history._rows) * 8 == size == 720_000

    @pytest.mark.parametrize(
        ("counts", "share", "expected"),
        [([0, 4, 0], 0.5, 1.5), ([4, 0, 4], 0.25, 0.5), ([0, 0, 4], 0.5, 2.0), ([1, 1, 0], 0.99, 1.98)],
    )
    def test_a_quantile_is_linear_within_its_bucket(self, counts: list[int], share: float, expected: float) -> None:
        assert quantile(counts, (1.0, 2.0), share) == pytest.approx(expected)
