"""`ramet bench connections`: what one process of 2,000 stuck connections costs the streams beside it.

One server of the bundled model, 64 streams that never pause, and a crowd of connections in equal parts of four kinds
(crowd.py) that comes and goes: windows beside the open crowd alternate with windows alone, and a machine that drifts
drifts for both. The time between tokens is taken where they arrive, over all tokens of a window; a round's growth is
that of the window beside over the mean of the windows alone before and after it. The growth is the median over rounds,
with the interval of the order statistics that holds the true median in at least 95 % of cases (rounds.py). The server
process's seconds of CPU for each token of the streams are measured by the same windows.

Crowds of these rounds are closed by their client. One more comes at the end and stays until the server has ended it,
for the deadlines. Memory is read before, after a small crowd (what a first request of each kind leaves) and after each.

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
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import orjson

from ramet.bench import report, stamp
from ramet.bench.client import NativeApi, follow
from ramet.bench.crowd import Crowd, Kind, provide_files
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.metrics import Timeline, percentile
from ramet.bench.rounds import interval
from ramet.bench.server import cpu_seconds, resident_bytes, started
from ramet.bench.values import positive

DEADLINE_S = 40.0  # of the server, for header, transfer and keep-alive; a window and the opening must fit
GRACE_S = 30.0  # beyond it: a transfer has a second more for each 16 KiB
SETTLE_S = 3.0  # until the server has given back what a crowd took
SMALL = 20  # the first crowd is so many times smaller
TOKENS = 256  # of each stream, which is followed by the next


class ConnectionWindow(NamedTuple):
    """A span of the clock, and what the server process used in it."""

    start: float
    end: float
    server_cpu_s: float
    server_mib: float  # at its end


class ConnectionRound(NamedTuple):
    before: ConnectionWindow
    beside: ConnectionWindow
    after: ConnectionWindow  # also the next one's `before`


class Last(NamedTuple):
    """The crowd that the server ended."""

    left: dict[str, int]  # by kind, those that it did not end
    longest_s: dict[str, float]  # by kind, of those that it did


class Streams:
    """Streams that run one after the other in so many places, until `stop`."""

    def __init__(self, session: aiohttp.ClientSession, num: int) -> None:
        self._session, self._stopping = session, False
        self.lines: list[Timeline] = []
        self._running: dict[int, Timeline] = {}
        self._tasks = [asyncio.create_task(self._place(i)) for i in range(num)]

    async def _place(self, number: int) -> None:
        prompt, params = f"Number {number} of many:", {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
        body = orjson.dumps({"text": prompt, "stream": True, "sampling_params": params})
        while not self._stopping:
            line = self._running[number] = Timeline(start=time.perf_counter())
            self.lines.append(await follow(line, self._session, "/generate", body, NativeApi(), stream=True))
            del self._running[number]

    @property
    def num_tokens(self) -> int:
        """Tokens that have arrived so far."""
        return sum(line.counts[-1] for line in (*self.lines, *self._running.values()) if line.counts)

    async def stop(self) -> None:
        """When the streams that run have ended. BadOption where one failed."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        for line in self.lines:
            if line.error or line.completion_tokens != TOKENS:
                raise BadOption(f"a stream ended after {line.completion_tokens} tokens: {line.error}")

    @cached_property
    def arrivals(self) -> tuple[np.ndarray, np.ndarray]:
        """Of every token but the first of a stream: when it came, ascending, and the milliseconds since the last."""
        times: list[float] = []
        gaps: list[float] = []
        for line in self.lines:
            for before, at, count, more in zip(line.times, line.times[1:], line.counts, line.counts[1:]):
                times += [at] * (more - count)
                gaps += [(at - before) * 1000 / (more - count)] * (more - count)
        order = np.argsort(times)
        return np.array(times)[order], np.array(gaps)[order]

    def gaps(self, each: "ConnectionWindow") -> list[float]:
        """Milliseconds between tokens that arrived in this window, ascending. Only after `stop`."""
        times, gaps = self.arrivals
        start, end = np.searchsorted(times, [each.start, each.end])
        return np.sort(gaps[start:end]).tolist()


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
    p.add_argument("--rounds", type=positive, default=40, help="default 40")
    p.add_argument("--window-s", type=positive, default=5, help="seconds of each window, default 5")
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
        before = await window(pid, options.window_s)  # warms everything
        await round_of(url, pid, options, before, options.connections // SMALL)
        alone = small = await window(pid, options.window_s)
        rounds = []
        for number in range(options.rounds):
            rounds.append(await round_of(url, pid, options, alone, options.connections))
            alone = rounds[-1].after
            print(f"round {number + 1} of {options.rounds}: server {alone.server_mib:g} MiB", flush=True)
        last = await ended(url, options)
        await asyncio.sleep(SETTLE_S)
        after_last = server_mib(pid)
    record = summed(rounds, streams, last)
    first = rounds[0].after.server_mib
    mib = {"before": before.server_mib, "after_small": small.server_mib}
    mib["beside"] = max(each.beside.server_mib for each in rounds)
    return {**record, "server_mib": {**mib, "after_first": first, "after_last": after_last}}


async def round_of(
    url: str, pid: int, options: argparse.Namespace, before: ConnectionWindow, num: int
) -> ConnectionRound:
    with Crowd(url) as crowd:
        await fill(crowd, num, url, options.streams)
        beside = await window(pid, options.window_s)
        if crowd.num_open().total() < len(crowd.members):
            raise BadOption("the crowd was ended within the window: make --window-s shorter")
    await asyncio.sleep(SETTLE_S)
    return ConnectionRound(before, beside, await window(pid, options.window_s))


async def ended(url: str, options: argparse.Namespace) -> Last:
    with Crowd(url) as crowd:
        await fill(crowd, options.connections, url, options.streams)
        left = await crowd.until_ended(DEADLINE_S + GRACE_S)
        longest = {kind.value: round(seconds, 1) for kind, seconds in crowd.longest_s().items()}
    return Last({kind.value: num for kind, num in left.items()}, longest)


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


async def window(pid: int, seconds: float) -> ConnectionWindow:
    start, used = time.perf_counter(), server_cpu(pid)
    await asyncio.sleep(seconds)
    return ConnectionWindow(start, time.perf_counter(), server_cpu(pid) - used, server_mib(pid))


def summed(rounds: Sequence[ConnectionRound], streams: Streams, last: Last) -> dict[str, Any]:
    """Times in milliseconds. A growth is the share of the mean of a round's windows alone."""

    def median_gap(each: ConnectionWindow) -> float:
        return percentile(streams.gaps(each), 50.0)

    def p99_gap(each: ConnectionWindow) -> float:
        return percentile(streams.gaps(each), 99.0)

    def cpu_a_token(each: ConnectionWindow) -> float:
        return each.server_cpu_s * 1000 / len(streams.gaps(each))

    record: dict[str, Any] = {"rounds": len(rounds), "streams_ended": len(streams.lines)}
    for name, measure in (("median", median_gap), ("p99", p99_gap), ("server_cpu", cpu_a_token)):
        pairs = [((measure(each.before) + measure(each.after)) / 2, measure(each.beside)) for each in rounds]
        growths = [beside / alone - 1 for alone, beside in pairs]
        record[name] = {
            "alone_ms": round(statistics.median(alone for alone, _ in pairs), 4),
            "beside_ms": round(statistics.median(beside for _, beside in pairs), 4),
            "growth": round(statistics.median(growths), 4),
            "growth_interval": [round(value, 4) for value in interval(growths)],
        }
    record["left_open"] = sum(last.left.values())
    record["longest_s"] = last.longest_s
    return record


def table(record: dict[str, Any]) -> str:
    lines = [f"{'':<28}{'alone':>10}{'beside':>10}{'growth':>9}   interval"]
    names = {"median": "time between tokens, median", "p99": "p99", "server_cpu": "server's CPU for a token"}
    for key, name in names.items():
        row = record[key]
        low, high = row["growth_interval"]
        shown = f"{row['alone_ms']:>7.3g} ms{row['beside_ms']:>7.3g} ms{row['growth']:>9.1%}"
        lines.append(f"{name:<28}{shown}   [{low:.1%}, {high:.1%}]")
    memory = ", ".join(f"{name.replace('_', ' ')} {mib:g}" for name, mib in record["server_mib"].items())
    lives = ", ".join(f"{kind} {seconds:g} s" for kind, seconds in record["longest_s"].items())
    lines += [f"server process, MiB: {memory}", f"longest life: {lives}"]
    return "\n".join([*lines, f"left open after their deadlines: {record['left_open']}"])


def server_cpu(pid: int) -> float:
    return cpu_seconds(pid)["server"]


def server_mib(pid: int) -> float:
    return round(resident_bytes(pid)["server"] / (1 << 20), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
