"""`ramet bench compiles`: what running requests feel while constraints compile that take seconds, or never end.

A server of a small model with made-up weights runs with one thread and two seconds of --grammar-timeout-s. Four streams
write freely and four under a cheap constraint. A window of some seconds follows the other: nothing compiles, or two
clients keep asking for constraints that no cache has, of one of these kinds:

  compiles   the largest regular expressions that compile in a good second: they are loaded, and their request runs
  killed     much larger ones: each compile worker is killed at the timeout, and the request ends with 504

A figure is the time between two tokens of a stream, of all streams of a window. Growth is that of a window over the one
without compiles of the same round: its median over rounds, with the interval that holds the true median in at least
95 % of cases. The median should not grow by more than 20 %.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from ramet.bench import report, stamp, vocabulary
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.offline import make_checkpoint
from ramet.bench.rounds import interval, turned
from ramet.bench.server import started
from ramet.bench.stalls import SMALL
from ramet.bench.values import positive

QUIET = "nothing compiles"
SLOW = "[A-Za-z ,.]{{50,{most}}}"
KINDS: dict[str, tuple[str, int]] = {  # backend, and how large the regular expression is
    "compiles, xgrammar": ("xgrammar", 100),
    "compiles, outlines": ("outlines", 1000),
    "killed, outlines": ("outlines", 16_000),
}
STEADY: tuple[dict[str, Any], ...] = ({}, {"regex": "[a-z ]+"})  # what the streams ask for, in turn
STREAMS, CLIENTS = 8, 2
MAX_TRIES = 10
FIRST_TOKENS = 8  # of each stream before a window begins
STREAM_TOKENS = 1500  # after that a stream asks again
MEDIAN, P99 = "median", "p99"


@dataclass
class CompileStream:
    """When each token of a stream came, request by request."""

    times: list[list[float]] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def gaps(self, start: float, end: float) -> list[float]:
        """Seconds between tokens of which both came in the window."""
        inside = ([at for at in times if start <= at <= end] for times in self.times)
        return [after - before for times in inside for before, after in pairwise(times)]


@dataclass(frozen=True)
class Window:
    gap_ms: dict[str, float]  # median, 99th percentile
    num_gaps: int
    ended: dict[str, int]  # HTTP status -> how many of the constraints


class CostlyConstraints:
    """Clients that ask for one costly constraint after the other, each a new one."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session, self._numbers = session, count()
        self._stopped = False

    async def compile_cheap(self) -> None:
        """What the streams ask for. The first one waits until a worker has loaded its library, which may time out."""
        for asked in STEADY:
            body = {"text": "a", "sampling_params": {"max_new_tokens": 4, **asked}}
            for _ in range(MAX_TRIES):
                async with self._session.post("/generate", json=body) as response:
                    if response.status == 200:
                        break
                    said = await response.text()
            else:
                raise BadOption(f"{asked} is not served: {said[:300]}")

    async def run(self, backend: str, most: int) -> Counter[str]:
        """Until `stop`; the last answers are waited for, so that nothing compiles in the next window."""
        self._stopped, ended = False, Counter[str]()
        await asyncio.gather(*(self._client(backend, most, ended) for _ in range(CLIENTS)))
        return ended

    def stop(self) -> None:
        self._stopped = True

    async def _client(self, backend: str, most: int, ended: Counter[str]) -> None:
        while not self._stopped:
            params = {"regex": f"{next(self._numbers)} {SLOW.format(most=most)}", "max_new_tokens": 4}
            params["grammar_backend"] = backend
            async with self._session.post("/generate", json={"text": "a", "sampling_params": params}) as response:
                ended[str(response.status)] += 1
                if response.status not in (200, 504):
                    raise BadOption(f"a constraint got {response.status}: {(await response.text())[:300]}")
                await response.read()


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    windows: dict[str, list[Window]] = {name: [] for name in (QUIET, *(options.kind or KINDS))}
    try:
        with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
            make_model(Path(folder), options.vocab_size)
            with started([*_server_options(folder), *options.serve]) as server:
                run_fast(measure(server.url, windows, options))
    except BadOption as error:
        print(f"ramet bench compiles: {error}", file=sys.stderr)
        return 1
    figures = {name: summed(each, windows[QUIET]) for name, each in windows.items()}
    print(table(figures))
    made = stamp.stamp(stamp.command_line("compiles", argv))
    chosen = {name: getattr(options, name) for name in ("rounds", "window_s", "vocab_size")}
    report.append_line(options.output_file, {"bench": "compiles", **made, **chosen, "windows": figures})
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench compiles", description=__doc__, formatter_class=formatter)
    p.add_argument("--rounds", type=positive, default=7, help="default 7")
    p.add_argument("--window-s", type=positive, default=10, help="seconds of a window, default 10")
    p.add_argument("--vocab-size", type=positive, default=32_000, help="default 32000")
    p.add_argument("--kind", choices=list(KINDS), action="append", help="default: all")
    p.add_argument("--output-file", type=Path, default=report.results_file("compiles"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def _server_options(folder: str) -> list[str]:
    own = ["--model-path", folder, "--num-threads", "1", "--grammar-timeout-s", "2", "--random-seed", "0"]
    return [*own, "--max-total-tokens", "65536", "--log-level", "error"]


def make_model(folder: Path, vocab_size: int) -> None:
    """A checkpoint whose tokenizer spells every text."""
    make_checkpoint(folder, {**SMALL, "vocab_size": vocab_size, "eos_token_id": vocabulary.end_id(vocab_size)})
    vocabulary.write(folder, vocab_size)


async def measure(url: str, windows: dict[str, list[Window]], options: argparse.Namespace) -> None:
    """Adds the windows of each round. A first round without figures warms the compile workers."""
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(300)) as session:
        constraints = CostlyConstraints(session)
        await constraints.compile_cheap()
        for number in range(options.rounds + 1):
            for name in turned(list(windows), number):
                window = await one_window(session, constraints, name, options.window_s if number else 1)
                if number:
                    windows[name].append(window)
                    print(f"round {number} {_line(name, window)}", flush=True)


async def one_window(
    session: aiohttp.ClientSession, constraints: CostlyConstraints, name: str, window_s: float
) -> Window:
    ended: dict[str, int] = {}
    async with steady(session) as streams:
        start = time.perf_counter()
        asking = None if name == QUIET else asyncio.create_task(constraints.run(*KINDS[name]))
        await asyncio.sleep(window_s)
        end = time.perf_counter()
        constraints.stop()
    if asking is not None:
        ended = dict(await asking)
    gaps = [gap * 1000 for stream in streams for gap in stream.gaps(start, end)]
    if not gaps:
        raise BadOption(f"no stream had two tokens in a window of {window_s} s")
    spread = {MEDIAN: float(np.quantile(gaps, 0.5)), P99: float(np.quantile(gaps, 0.99))}
    return Window(spread, len(gaps), ended)


@asynccontextmanager
async def steady(session: aiohttp.ClientSession) -> AsyncIterator[list[CompileStream]]:
    """Streams that run, from their first tokens on until the end of the block."""
    streams = [CompileStream() for _ in range(STREAMS)]
    reading = [asyncio.create_task(_follow(session, s, STEADY[i % len(STEADY)])) for i, s in enumerate(streams)]
    begun = asyncio.create_task(_all_begun(streams))
    try:
        await asyncio.wait([begun, *reading], return_when=asyncio.FIRST_COMPLETED)
        _check(reading)
        yield streams
        _check(reading)
    finally:
        for task in (begun, *reading):
            task.cancel()


async def _all_begun(streams: Sequence[CompileStream]) -> None:
    for stream in streams:
        await stream.begun.wait()


def _check(reading: Sequence["asyncio.Task[None]"]) -> None:
    for task in reading:
        if task.done():
            raise BadOption(f"a stream ended: {task.exception()}")


async def _follow(session: aiohttp.ClientSession, stream: CompileStream, asked: dict[str, Any]) -> None:
    params = {"max_new_tokens": STREAM_TOKENS, "temperature": 1.0, "ignore_eos": True, **asked}
    while True:
        stream.times.append([])
        body = {"text": "a", "sampling_params": params, "stream": True}
        async with session.post("/generate", json=body) as response:
            if response.status != 200:
                raise BadOption(f"a stream got {response.status}: {(await response.text())[:300]}")
            async for _ in response.content.iter_any():
                stream.times[-1].append(time.perf_counter())
                if len(stream.times[-1]) == FIRST_TOKENS:
                    stream.begun.set()


def summed(windows: Sequence[Window], quiet: Sequence[Window]) -> dict[str, Any]:
    """Medians over rounds; growth is over the quiet window of the same round."""
    figures: dict[str, Any] = {"ended": dict(sum((Counter(each.ended) for each in windows), Counter()))}
    for name in (MEDIAN, P99):
        growth = [each.gap_ms[name] / base.gap_ms[name] - 1 for each, base in zip(windows, quiet, strict=True)]
        low, high = interval(growth)
        figures[name] = {
            "ms": round(statistics.median(each.gap_ms[name] for each in windows), 2),
            "growth": round(statistics.median(growth), 4),
            "growth_interval": [round(low, 4), round(high, 4)],
        }
    return figures


def table(figures: dict[str, dict[str, Any]]) -> str:
    titles = "".join(f"{name + ', ms':>12}{'growth':>9}   {'interval':<16}" for name in (MEDIAN, P99))
    lines = [f"{'window':<22}{titles}"]
    for window, each in figures.items():
        cells = "".join(_cells(each[name]) for name in (MEDIAN, P99))
        lines.append(f"{window:<22}{cells}{each['ended'] or ''}")
    return "\n".join(lines)


def _cells(figure: dict[str, Any]) -> str:
    low, high = figure["growth_interval"]
    return f"{figure['ms']:>12.2f}{figure['growth']:>9.1%}   {f'[{low:.1%}, {high:.1%}]':<16}"


def _line(name: str, window: Window) -> str:
    ended = ", ".join(f"{number} with {status}" for status, number in window.ended.items())
    return f"{name:<22}{window.gap_ms[MEDIAN]:>9.2f} ms, p99 {window.gap_ms[P99]:.2f} ms of {window.num_gaps}; {ended}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
