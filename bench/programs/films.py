"""`ramet bench films`: how much longer running streams wait for their next token while films are decoded.

A server of a text decoder of the 160M class with made-up weights and a small tower, on one thread (`--num-threads 1`),
so that of two cores one is left for all else. Some streams of completions run. For some seconds nothing else happens;
then a film of 30 seconds (640 x 360, 25 frames a second, H.264) is sent, one after the other, each when the one before
is answered (128 frames, whose features are kept: decoding is the cost). Then both again, the other way round: a stream
reads more keys with each of its tokens, so that whatever comes later is slower, and by turning both are as late. A
round's ratio is the median time between two tokens with films (the mean of both times') over that without; rounds
begin with the one and the other in turn. Each film is a file of its own, because files that were decoded lately are
known; their frames are the same.
"""

import argparse
import asyncio
import base64
import os
import random
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loads import SHAPE
from ramet.bench.loop import run_fast
from ramet.bench.metrics import percentile
from ramet.bench.programs.seeing import TEXT, film, write_onevision
from ramet.bench.programs.words import END_ID, VOCABULARY
from ramet.bench.rounds import told, turned
from ramet.bench.server import started
from ramet.bench.stalls import StallStream, follow
from ramet.bench.values import positive

ALONE, WITH = "alone", "with films"
MAX_RATIO = 1.2  # asked of the ratio
SIZES = "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"
LARGE: dict[str, Any] = {**TEXT, **{name: SHAPE[name] for name in SIZES}, "max_position_embeddings": 4096}
TOWER: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 16,
}  # fmt: skip
SIDE = 64  # pixels of a frame as the tower reads it
FRAMES = 128  # evenly over the film, so that all of it is decoded
FREE_BYTES = 24  # of a box: its length, its kind, and 16 that are never the same


class FilmWindow(NamedTuple):
    gaps_ms: list[float]
    films_s: list[float]  # of each film from its request to its reply


class FilmRound(NamedTuple):
    alone_ms: float
    with_ms: float
    alone_p99_ms: float
    with_p99_ms: float
    film_s: float

    @property
    def ratio(self) -> float:
        return self.with_ms / self.alone_ms


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    rounds: list[FilmRound] = []
    try:
        with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
            write_onevision(Path(folder), SIDE, LARGE, TOWER)
            shown = film("film", options.film_s)
            with started([*_server_options(folder), *options.serve]) as server:
                run_fast(warm(server.url, shown))
                for number in range(options.rounds):
                    rounds.append(run_fast(measure(server.url, options, shown, number)))
                    print(f"round {number + 1} {_line(rounds[-1])}", flush=True)
    except BadOption as error:
        print(f"ramet bench films: {error}", file=sys.stderr)
        return 1
    ratio = told([each.ratio for each in rounds])
    held = "holds" if ratio["median"] <= MAX_RATIO else "MISSED"
    print(
        f"ratio {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f}); asked: at most {MAX_RATIO:g}, {held}"
    )
    made = stamp.stamp(stamp.command_line("films", argv))
    load = {name: getattr(options, name) for name in ("streams", "film_s", "window_s", "rounds")}
    lines = [{**each._asdict(), "ratio": each.ratio} for each in rounds]
    measured = [{name: round(value, 4) for name, value in line.items()} for line in lines]
    report.append_line(options.output_file, {"bench": "films", **made, **load, "ratio": ratio, "measured": measured})
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench films", description=__doc__, formatter_class=formatter)
    p.add_argument("--streams", type=positive, default=4, help="that run, default 4")
    p.add_argument("--film-s", type=float, default=30.0, help="length of a film, default 30")
    p.add_argument("--window-s", type=float, default=4.0, help="seconds without films, and with, default 4")
    p.add_argument("--rounds", type=positive, default=7, help="default 7")
    p.add_argument("--output-file", type=Path, default=report.results_file("films"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def _server_options(folder: str) -> list[str]:
    own = ["--model-path", folder, "--num-threads", "1", "--dtype", "bfloat16", "--max-total-tokens", "32768"]
    return [*own, "--random-seed", "0", "--log-level", "warning"]


async def warm(url: str, shown: bytes) -> None:
    """Its workers begin, which takes seconds."""
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(300)) as session:
        await asyncio.gather(*(_send(session, shown) for _ in range(2)))


async def measure(url: str, options: argparse.Namespace, shown: bytes, number: int) -> FilmRound:
    draw = random.Random(f"films {number}")
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(300)) as session, AsyncExitStack() as stack:
        streams = [StallStream() for _ in range(options.streams)]
        prompts = [draw.choices(range(END_ID + 1, VOCABULARY), k=16) for _ in streams]
        reading = [asyncio.create_task(follow(session, *each)) for each in zip(streams, prompts, strict=True)]
        stack.callback(lambda: [task.cancel() for task in reading])
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
        found: dict[str, list[FilmWindow]] = {ALONE: [], WITH: []}
        order = turned([ALONE, WITH], number)
        for name in [*order, *reversed(order)]:
            start = time.perf_counter()
            films_s = await _during(session, name, options, shown)
            gaps = [gap * 1e3 for stream in streams for gap in stream.gaps(start, time.perf_counter())]
            found[name].append(FilmWindow(gaps, films_s))
        for task in reading:
            if task.done():
                raise BadOption(f"a stream ended before the films: {task.exception()!r}; ask for a shorter --window-s")
    alone, busy = found[ALONE], found[WITH]
    film_s = statistics.median(seconds for each in busy for seconds in each.films_s)
    return FilmRound(_median(alone), _median(busy), _p99(alone), _p99(busy), film_s)


def _median(windows: list[FilmWindow]) -> float:
    return statistics.fmean(statistics.median(each.gaps_ms) for each in windows)


def _p99(windows: list[FilmWindow]) -> float:
    return statistics.fmean(percentile(sorted(each.gaps_ms), 99) for each in windows)


async def _during(session: aiohttp.ClientSession, name: str, options: argparse.Namespace, shown: bytes) -> list[float]:
    """What happens beside the streams; the seconds of each film."""
    if name == ALONE:
        await asyncio.sleep(options.window_s)
        return []
    seconds: list[float] = []
    while sum(seconds) < options.window_s:
        start = time.perf_counter()
        await _send(session, shown)
        seconds.append(time.perf_counter() - start)
    return seconds


def another(shown: bytes) -> bytes:
    """The same film in another file: with a box that no reader looks into (ISO/IEC 14496-12, 8.1.2)."""
    return shown + struct.pack(">I4s16s", FREE_BYTES, b"free", os.urandom(16))


async def _send(session: aiohttp.ClientSession, shown: bytes) -> None:
    uri = "data:video/mp4;base64," + base64.b64encode(another(shown)).decode()
    params = {"max_new_tokens": 1, "temperature": 0}
    body = {"text": "<video>", "video_data": {"url": uri, "num_frames": FRAMES}, "sampling_params": params}
    async with session.post("/generate", json=body) as response:
        if response.status != 200:
            raise BadOption(f"a film got {response.status}: {(await response.text())[:300]}")
        await response.read()


def _line(each: FilmRound) -> str:
    gaps = f"{each.alone_ms:.1f} ms alone, {each.with_ms:.1f} ms with films (99 %: {each.alone_p99_ms:.1f}"
    return f"{gaps}, {each.with_p99_ms:.1f}), ratio {each.ratio:.3f}; a film took {each.film_s:.2f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
