"""`ramet bench connections`: what one process of 2,000 stuck connections costs the streams beside it.

One server of the bundled model, 64 streams that never pause, and rounds of two windows: alone, and beside a crowd of
connections in equal parts of four kinds (crowd.py), all of them open. After the second window the crowd stays until the
server has ended it. Windows alternate, so a machine that drifts drifts for both. The time between tokens is taken where
they arrive, over all tokens of a window; the growth is that of a round's two windows: its median over rounds, with the
interval of the order statistics that holds the true median in at least 95 % of cases (rounds.py).

The client of streams and crowd is this process. What the crowd costs it is small (it waits, without a task for each
connection) and counts as the server's.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson

from ramet.bench import report, stamp
from ramet.bench.client import Native, ask
from ramet.bench.crowd import Crowd, Kind, provide_files
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.metrics import Timeline, percentile
from ramet.bench.rounds import interval
from ramet.bench.server import resident_bytes, started
from ramet.bench.values import positive

DEADLINE_S = 40.0  # of the server, for header, transfer and keep-alive; a window and the opening must fit
GRACE_S = 30.0  # beyond it: a transfer has a second more for each 16 KiB
SETTLE_S = 3.0  # until the server has given back what a crowd took
TOKENS = 256  # of each stream, which is followed by the next


class Window(NamedTuple):
    """A span of the clock, and the memory of the server process at its end."""

    start: float
    end: float
    server_mib: float


class Round(NamedTuple):
    alone: Window
    beside: Window
    left: dict[str, int]  # by kind, those that the server did not end
    longest_s: dict[str, float]  # by kind, of those that it ended
    after_mib: float  # of the server process when the crowd is gone


class Streams:
    """Streams that run one after the other in so many places, until `stop`."""

    def __init__(self, session: aiohttp.ClientSession, num: int) -> None:
        self._session, self._stopping = session, False
        self.lines: list[Timeline] = []
        self._tasks = [asyncio.create_task(self._place(i)) for i in range(num)]

    async def _place(self, number: int) -> None:
        prompt, params = f"Number {number} of many:", {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
        body = orjson.dumps({"text": prompt, "stream": True, "sampling_params": params})
        while not self._stopping:
            self.lines.append(await ask(self._session, "/generate", body, Native(), stream=True))

    async def stop(self) -> None:
        """When the streams that run have ended. BadOption where one failed."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        for line in self.lines:
            if line.error or line.completion_tokens != TOKENS:
                raise BadOption(f"a stream ended after {line.completion_tokens} tokens: {line.error}")

    def gaps(self, start: float, end: float) -> list[float]:
        """Milliseconds between tokens that arrived between these times, in ascending order."""
        found: list[float] = []
        for line in self.lines:
            for before, at, count, more in zip(line.times, line.times[1:], line.counts, line.counts[1:]):
                if start <= at < end:
                    found += [(at - before) * 1000 / (more - count)] * (more - count)
        return sorted(found)


@asynccontextmanager
async def streaming(url: str, num: int) -> AsyncIterator[Streams]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
        streams = Streams(session, num)
        try:
            yield streams
        finally:
            await streams.stop()


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench connections", description="What stuck connections cost streams.")
    p.add_argument("--connections", type=positive, default=2000, help="of the crowd, default 2000")
    p.add_argument("--streams", type=positive, default=64, help="default 64")
    p.add_argument("--rounds", type=positive, default=7, help="default 7")
    p.add_argument("--window-s", type=positive, default=10, help="seconds of each window, default 10")
    p.add_argument("--output-file", type=Path, default=report.results_file("connections"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    options = p.parse_args(list(argv))
    try:
        provide_files(options.connections + options.streams)
        with started(server_options(options)) as server:
            record = run_fast(measured(server.url, server.pid, options))
    except BadOption as error:
        print(f"ramet bench connections: {error}", file=sys.stderr)
        return 1
    print(table(record))
    made = stamp.stamp(stamp.command_line("connections", argv))
    shape = {"connections": options.connections, "streams": options.streams, "window_s": options.window_s}
    report.append_line(options.output_file, {"bench": "connections", **made, **shape, **record})
    return 1 if record["left_open"] else 0


def server_options(options: argparse.Namespace) -> list[str]:
    deadlines = [("--header-timeout-s", DEADLINE_S), ("--transfer-timeout-s", DEADLINE_S)]
    deadlines += [("--keep-alive-timeout-s", DEADLINE_S)]
    flags = [word for name, value in deadlines for word in (name, f"{value:g}")]
    return [*flags, "--max-running-requests", str(2 * options.streams), "--log-level", "warning", *options.serve]


async def measured(url: str, pid: int, options: argparse.Namespace) -> dict[str, Any]:
    async with streaming(url, options.streams) as streams:
        first = await window(pid, options.window_s)  # warms everything
        rounds = []
        for number in range(options.rounds):
            rounds.append(await one_round(url, pid, options))
            print(f"round {number + 1} of {options.rounds}: {rounds[-1].longest_s}")
    return summed(rounds, streams, first.server_mib)


async def one_round(url: str, pid: int, options: argparse.Namespace) -> Round:
    alone = await window(pid, options.window_s)
    with Crowd(url) as crowd:
        await fill(crowd, options.connections, url, options.streams)
        beside = await window(pid, options.window_s)
        if crowd.num_open().total() < len(crowd.members):
            raise BadOption("the crowd was ended within the window: make --window-s shorter")
        left = await crowd.until_ended(DEADLINE_S + GRACE_S)
        longest = {kind.value: round(seconds, 1) for kind, seconds in crowd.longest_s().items()}
    await asyncio.sleep(SETTLE_S)
    return Round(alone, beside, {kind.value: num for kind, num in left.items()}, longest, server_mib(pid))


async def fill(crowd: Crowd, num: int, url: str, streams: int) -> None:
    """Equal parts of each kind; returns when the readers' streams are made and wait to be read."""
    for kind in (Kind.READER, Kind.BODY, Kind.IDLE, Kind.HEADER):
        await crowd.open(kind, num // len(Kind))
        if kind is Kind.READER:
            await settled(url, streams)


async def settled(url: str, streams: int) -> None:
    """Nothing runs or waits in the scheduler but the steady streams."""
    async with aiohttp.ClientSession(url) as session:
        while True:
            async with session.get("/get_server_info") as response:
                state = orjson.loads(await response.read())["internal_states"][0]
            if state["running_requests"] + state["waiting_requests"] <= streams:
                return
            await asyncio.sleep(0.1)


async def window(pid: int, seconds: float) -> Window:
    start = time.perf_counter()
    await asyncio.sleep(seconds)
    return Window(start, time.perf_counter(), server_mib(pid))


def summed(rounds: Sequence[Round], streams: Streams, before_mib: float) -> dict[str, Any]:
    """Times in milliseconds, memory in MiB; growths are shares of the window alone of the same round."""
    alone = [streams.gaps(each.alone.start, each.alone.end) for each in rounds]
    beside = [streams.gaps(each.beside.start, each.beside.end) for each in rounds]
    record: dict[str, Any] = {"rounds": len(rounds), "streams_ended": len(streams.lines)}
    for name, percent in (("median", 50.0), ("p99", 99.0)):
        pairs = [(percentile(a, percent), percentile(b, percent)) for a, b in zip(alone, beside, strict=True)]
        growths = [b / a - 1 for a, b in pairs]
        record[name] = {
            "alone_ms": round(statistics.median(a for a, _ in pairs), 3),
            "beside_ms": round(statistics.median(b for _, b in pairs), 3),
            "growth": round(statistics.median(growths), 4),
            "growth_interval": [round(value, 4) for value in interval(growths)],
        }
    record["server_mib"] = {
        "before": before_mib,
        "beside": max(each.beside.server_mib for each in rounds),
        "after_first": rounds[0].after_mib,
        "after_last": rounds[-1].after_mib,
    }
    record["left_open"] = sum(sum(each.left.values()) for each in rounds)
    record["longest_s"] = {kind.value: max(each.longest_s.get(kind.value, 0.0) for each in rounds) for kind in Kind}
    return record


def table(record: dict[str, Any]) -> str:
    lines = [f"{'time between tokens':<22}{'alone':>10}{'beside':>10}{'growth':>9}   interval"]
    for name in ("median", "p99"):
        row = record[name]
        low, high = row["growth_interval"]
        shown = f"{row['alone_ms']:>7.2f} ms{row['beside_ms']:>7.2f} ms{row['growth']:>9.1%}"
        lines.append(f"{name:<22}{shown}   [{low:.1%}, {high:.1%}]")
    memory = ", ".join(f"{name.replace('_', ' ')} {mib:g}" for name, mib in record["server_mib"].items())
    lives = ", ".join(f"{kind} {seconds:g} s" for kind, seconds in record["longest_s"].items())
    lines += [f"server process, MiB: {memory}", f"longest life: {lives}"]
    return "\n".join([*lines, f"left open after their deadlines: {record['left_open']}"])


def server_mib(pid: int) -> float:
    return round(resident_bytes(pid)["server"] / (1 << 20), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
