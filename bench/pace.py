"""`ramet bench pace`: how long running streams wait for their next token while long prompts arrive, by --max-itl-ms.

Every variant gets a server of its own, of a 160M-shaped model with made-up weights. Some streams of completions run;
then prompts come one after the other, each when the one before is answered (one new token, nothing cached). What is
measured lies between the first prompt and the last answer: all gaps between two tokens of a stream, the tokens a second
of the streams together, and the prompt tokens a second, which is what the bound costs. Variants run in turn, round by
round; gaps of all rounds are taken together, other figures are medians.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loads import SHAPE
from ramet.bench.loop import run_fast
from ramet.bench.metrics import percentile
from ramet.bench.offline import make_checkpoint
from ramet.bench.rounds import turned
from ramet.bench.server import started
from ramet.bench.stalls import StallStream, follow
from ramet.bench.values import positive

BOUNDS_MS = (None, 200.0, 100.0, 50.0)  # of --max-itl-ms; None: unset
STREAM_PROMPT = 16  # tokens


@dataclass(frozen=True)
class PaceRun:
    gaps_ms: list[float]
    tokens_per_s: float  # of all streams
    prompt_tokens_per_s: float


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    bounds: list[float | None] = [None, *options.bound] if options.bound else list(BOUNDS_MS)
    runs: dict[str, list[PaceRun]] = {_name(bound): [] for bound in bounds}
    flags = {_name(bound): [] if bound is None else ["--max-itl-ms", f"{bound:g}"] for bound in bounds}
    try:
        with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
            make_checkpoint(Path(folder))
            for number in range(options.rounds):
                for name in turned(list(runs), number):
                    with started([*_server_options(folder), *flags[name], *options.serve]) as server:
                        run_fast(measure(server.url, options, seed=-1, num_prompts=1))  # first steps are slower
                        runs[name].append(run_fast(measure(server.url, options, number, options.prompts)))
                    print(f"round {number + 1} {_line(name, summed(runs[name][-1:]))}", flush=True)
    except BadOption as error:
        print(f"ramet bench pace: {error}", file=sys.stderr)
        return 1
    figures = {name: summed(each) for name, each in runs.items()}
    for name, each in figures.items():
        print(_line(name, each))
    made = stamp.stamp(stamp.command_line("pace", argv))
    load = {name: getattr(options, name) for name in ("streams", "prompts", "prompt_len", "rounds")}
    report.append_line(options.output_file, {"bench": "pace", **made, **load, "variants": figures})
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench pace", description=__doc__, formatter_class=formatter)
    p.add_argument("--streams", type=positive, default=8, help="that run, default 8")
    p.add_argument("--prompts", type=positive, default=6, help="default 6")
    p.add_argument("--prompt-len", type=positive, default=1024, help="tokens, default 1024")
    p.add_argument("--bound", type=float, action="append", metavar="MS", help="--max-itl-ms; default: 200, 100 and 50")
    p.add_argument("--rounds", type=positive, default=2, help="default 2")
    p.add_argument("--output-file", type=Path, default=report.results_file("pace"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the servers")
    return p


def _server_options(folder: str) -> list[str]:
    return ["--model-path", folder, "--max-total-tokens", "32768", "--random-seed", "0", "--log-level", "warning"]


async def measure(url: str, options: argparse.Namespace, seed: int, num_prompts: int) -> PaceRun:
    draw = random.Random(f"pace {seed}")
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(300)) as session, AsyncExitStack() as stack:
        streams = [StallStream() for _ in range(options.streams)]
        reading = [asyncio.create_task(follow(session, each, _ids(draw, STREAM_PROMPT))) for each in streams]
        stack.callback(lambda: [task.cancel() for task in reading])
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
        start = time.perf_counter()
        for _ in range(num_prompts):
            await _ask(session, _ids(draw, options.prompt_len))
        end = time.perf_counter()
        for task in reading:
            if task.done():
                raise BadOption(f"a stream ended before the prompts were answered: {task.exception()!r}")
    gaps = [gap for stream in streams for gap in stream.gaps(start, end)]
    seconds = end - start
    return PaceRun([gap * 1e3 for gap in gaps], len(gaps) / seconds, num_prompts * options.prompt_len / seconds)


async def _ask(session: aiohttp.ClientSession, prompt: list[int]) -> None:
    body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    async with session.post("/generate", json=body) as response:
        if response.status != 200:
            raise BadOption(f"a prompt got {response.status}: {(await response.text())[:300]}")
        await response.read()


def _ids(draw: random.Random, num: int) -> list[int]:
    return draw.choices(range(3, int(str(SHAPE["vocab_size"]))), k=num)


def summed(runs: Sequence[PaceRun]) -> dict[str, Any]:
    gaps = sorted(gap for run in runs for gap in run.gaps_ms)
    return {
        "p50_ms": round(percentile(gaps, 50), 1),
        "p99_ms": round(percentile(gaps, 99), 1),
        "max_ms": round(gaps[-1], 1),
        "tokens_per_s": round(statistics.median(run.tokens_per_s for run in runs), 1),
        "prompt_tokens_per_s": round(statistics.median(run.prompt_tokens_per_s for run in runs), 1),
    }


def _name(bound: float | None) -> str:
    return "no bound" if bound is None else f"--max-itl-ms {bound:g}"


def _line(name: str, figures: dict[str, Any]) -> str:
    gaps = f"gap ms {figures['p50_ms']:7.1f} (50 %) {figures['p99_ms']:7.1f} (99 %) {figures['max_ms']:7.1f} (longest)"
    rates = f"{figures['tokens_per_s']:7.1f} tokens/s, {figures['prompt_tokens_per_s']:7.1f} prompt tokens/s"
    return f"{name:<20} {gaps}  {rates}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
