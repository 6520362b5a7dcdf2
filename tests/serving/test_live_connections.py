"""One process opens hundreds of connections and goes no further: each ends, streams run on whole, memory is back."""

import asyncio
import time
from collections import Counter

import pytest
from live import Live
from samples import slow

from ramet.bench.connections import Streams, fill, settled, streaming
from ramet.bench.crowd import Crowd, Kind, provide_files
from ramet.bench.server import resident_bytes
from ramet.runtime.server.http.freed_memory import TRIM_AFTER_S

DEADLINES = {"header_timeout_s": 2, "transfer_timeout_s": 2, "keep_alive_timeout_s": 2}
ENDED_WITHIN_S = 60.0  # a hang fails here; the deadlines are far shorter
STREAMS = 8


async def texts_beside(live: Live, crowds: int, num: int) -> tuple[Streams, list[float]]:
    """Streams that run while one crowd after the other comes and is ended, and the server's memory after each.

    The last ones run when the crowds have gone.
    """
    memory: list[float] = []
    async with streaming(live.url, STREAMS) as streams:
        for _ in range(crowds):
            with Crowd(live.url) as crowd:
                await fill(crowd, num, live.url, STREAMS)
                assert Counter(each.kind for each in crowd.members) == dict.fromkeys(Kind, num // len(Kind))
                assert await crowd.until_ended(ENDED_WITHIN_S) == Counter()
            await asyncio.sleep(2 * TRIM_AFTER_S + 1)
            memory.append(resident_bytes(live.process.pid)["server"])
    async with streaming(live.url, STREAMS) as alone:
        await asyncio.sleep(0)  # each begins
    streams.lines += alone.lines
    return streams, memory


@pytest.mark.parametrize("num", [200, slow(2000)])
def test_a_crowd_that_goes_no_further_is_ended_and_streams_run_on(num: int) -> None:
    provide_files(num)
    with Live(dtype="float32", max_running_requests=64, check_invariants=True, **DEADLINES) as live:
        server = live.children()["server"]
        live.state()  # after a first request all files that stay open are
        files, before = server.num_fds(), resident_bytes(live.process.pid)["server"]
        streams, memory = asyncio.run(texts_beside(live, 2, num))  # raises where a stream failed or was cut
        assert len(streams.lines) > STREAMS >= len({line.text for line in streams.lines}), "a prompt has one text"
        assert memory[-1] - before < (16 << 20) + num * (50 << 10), (before, memory)
        assert memory[-1] - memory[0] < (8 << 20) + num * (20 << 10), memory
        state = live.state()
        while server.num_fds() > files + 2:  # the ends of the last streams are read; ends by the time limit of a test
            state = live.state()
        assert state["running_requests"] == state["waiting_requests"] == 0
        assert state["leased_tokens"] == state["owned_tokens"] == 0
        assert "Traceback" not in live.output()
        assert live.stop() == 0


def test_memory_of_replies_is_back_when_clients_leave_that_never_read() -> None:
    def memory() -> int:
        return resident_bytes(live.process.pid)["server"]

    async def most_while_read_by_none(num: int) -> int:
        """The most memory while `num` clients that never read are answered; some may be trimmed before the last is."""
        most = 0
        with Crowd(live.url) as crowd:
            await crowd.open(Kind.READER, num)
            answered = asyncio.create_task(settled(live.url, 0))
            while not answered.done():
                most = max(most, memory())
                await asyncio.sleep(0.05)
            await answered
        return most

    provide_files(200)
    with Live(dtype="float32", max_running_requests=64) as live:
        asyncio.run(most_while_read_by_none(8))  # what a first request leaves is no part of it
        before = memory()
        taken = asyncio.run(most_while_read_by_none(200)) - before
        assert taken > 20 << 20, "the test shows something only if replies take memory"
        while memory() - before > taken / 2:
            time.sleep(0.1)  # ends by the time limit of a test
