"""`ramet bench stalls`: how long steady streams wait for a token while a server makes one very large reply.

A server of a small model with made-up weights, 32,000 tokens of vocabulary. Four streams of completions run; after
their first tokens one request comes that asks for a million numbers, over a prompt of 3,900 tokens that is not cached.
A figure is the longest gap between two events of any stream, from when that request is sent until its last byte has
come, and the bytes and seconds of its reply. `prompt alone` asks for the same prompt and no numbers: its gap is what
the prompt itself costs, and the others' is compared with it. Figures are medians over rounds.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loads import SHAPE
from ramet.bench.loop import run_fast
from ramet.bench.offline import make_checkpoint
from ramet.bench.rounds import turned
from ramet.bench.server import cpu_seconds, started
from ramet.bench.values import positive

SMALL: dict[str, Any] = {
    **SHAPE, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 512,
}  # fmt: skip
FIRST_TOKENS = 8  # of each stream before the request comes
ALONE = "prompt alone"
_PROMPT = {"return_logprob": True, "logprob_start_len": 0}
_TOP = {**_PROMPT, "top_logprobs_num": 256}
_IDS = {**_PROMPT, "token_ids_logprob": list(range(3, 259))}
_STATES = {"return_hidden_states": True}
_OPENAI = {"logprobs": 256, "echo": True}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # path, and what is asked beside the prompt
    ALONE: ("/generate", {}),
    "256 best": ("/generate", _TOP),
    "256 best, texts": ("/generate", {**_TOP, "return_text_in_logprobs": True}),
    "256 best, streamed": ("/generate", {**_TOP, "stream": True}),
    "256 chosen": ("/generate", _IDS),
    "hidden states": ("/generate", _STATES),
    "hidden states, streamed": ("/generate", {**_STATES, "stream": True}),
    "echo, 256 best": ("/v1/completions", _OPENAI),
    "echo, 256 best, streamed": ("/v1/completions", {**_OPENAI, "stream": True}),
}


@dataclass
class StallStream:
    """When each event of one stream came."""

    times: list[float] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def longest_gap(self, start: float, end: float) -> float:
        """Of the gaps that lie, in part at least, between these times."""
        pairs = zip(self.times, [*self.times[1:], end])
        return max((after - before for before, after in pairs if after > start and before < end), default=end - start)

    def gaps(self, start: float, end: float) -> list[float]:
        """Seconds between two events that end in this time."""
        return [after - before for before, after in zip(self.times, self.times[1:]) if start < after <= end]


@dataclass(frozen=True)
class StallRun:
    gap_ms: float
    reply_s: float
    reply_mb: float
    cpu_s: dict[str, float]  # by process


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    runs: dict[str, list[StallRun]] = {name: [] for name in options.variant or VARIANTS}
    try:
        with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
            make_checkpoint(Path(folder), SMALL)
            with started([*_server_options(folder), *options.serve]) as server:
                run_fast(measure(server.url, server.pid, ALONE, options, seed=0))  # a first one warms everything
                for number in range(options.rounds):
                    for name in turned(list(runs), number):
                        run = run_fast(measure(server.url, server.pid, name, options, seed=number + 1))
                        runs[name].append(run)
                        print(f"round {number + 1} {_line(name, run)}", flush=True)
    except BadOption as error:
        print(f"ramet bench stalls: {error}", file=sys.stderr)
        return 1
    figures = {name: middle(each) for name, each in runs.items()}
    print(table(figures))
    made = stamp.stamp(stamp.command_line("stalls", argv))
    lengths = {"prompt_len": options.prompt_len, "streams": options.streams, "rounds": options.rounds}
    report.append_line(options.output_file, {"bench": "stalls", **made, **lengths, "variants": figures})
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench stalls", description=__doc__, formatter_class=formatter)
    p.add_argument("--streams", type=positive, default=4, help="steady ones, default 4")
    p.add_argument("--prompt-len", type=positive, default=3900, help="of the large request, default 3900")
    p.add_argument("--rounds", type=positive, default=3, help="default 3")
    p.add_argument("--variant", choices=list(VARIANTS), action="append", help="default: all")
    p.add_argument("--output-file", type=Path, default=report.results_file("stalls"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def _server_options(folder: str) -> list[str]:
    return ["--model-path", folder, "--max-total-tokens", "65536", "--random-seed", "0", "--log-level", "warning"]


async def measure(url: str, parent: int, variant: str, options: argparse.Namespace, seed: int) -> StallRun:
    """Start the streams, send the large request, and end the streams when its reply has come."""
    draw = random.Random(f"{variant} {seed}")
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(300)) as session, AsyncExitStack() as stack:
        streams = [StallStream() for _ in range(options.streams)]
        reading = [asyncio.create_task(follow(session, stream, _ids(draw, 16))) for stream in streams]
        stack.callback(lambda: [task.cancel() for task in reading])
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
        before, start = cpu_seconds(parent), time.perf_counter()
        size = await _ask(session, variant, _ids(draw, options.prompt_len))
        end, after = time.perf_counter(), cpu_seconds(parent)
        for task in reading:
            if task.done():
                raise BadOption(f"a stream ended before the reply of {variant!r}: {task.exception()!r}")
    gap = max(stream.longest_gap(start, end) for stream in streams)
    return StallRun(gap * 1000, end - start, size / 1e6, {role: after[role] - before[role] for role in after})


async def follow(session: aiohttp.ClientSession, stream: StallStream, prompt: list[int]) -> None:
    body = {"prompt": prompt, "max_tokens": 4000, "temperature": 0, "ignore_eos": True, "stream": True}
    async with session.post("/v1/completions", json=body) as response:
        async for _ in response.content.iter_any():
            stream.times.append(time.perf_counter())
            if len(stream.times) == FIRST_TOKENS:
                stream.begun.set()


async def _ask(session: aiohttp.ClientSession, variant: str, prompt: list[int]) -> int:
    """The bytes of the reply."""
    path, asked = VARIANTS[variant]
    if path == "/generate":
        body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 1, "temperature": 0}, **asked}
    else:
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, **asked}
    size = 0
    async with session.post(path, json=body) as response:
        if response.status != 200:
            raise BadOption(f"{variant!r} got {response.status}: {(await response.text())[:300]}")
        async for piece in response.content.iter_any():
            size += len(piece)
    return size


def _ids(draw: random.Random, num: int) -> list[int]:
    return draw.choices(range(3, SMALL["vocab_size"]), k=num)


def middle(runs: Sequence[StallRun]) -> dict[str, Any]:
    """Medians, and every gap."""
    return {
        "gap_ms": round(statistics.median(run.gap_ms for run in runs), 1),
        "gaps_ms": [round(run.gap_ms, 1) for run in runs],
        "reply_s": round(statistics.median(run.reply_s for run in runs), 2),
        "reply_mb": round(statistics.median(run.reply_mb for run in runs), 1),
        "cpu_s": {role: round(statistics.median(run.cpu_s[role] for run in runs), 2) for role in runs[0].cpu_s},
    }


def table(figures: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'variant':<26}{'longest gap':>14}{'reply':>10}{'size':>12}"]
    for name, each in figures.items():
        lines.append(f"{name:<26}{each['gap_ms']:>11.0f} ms{each['reply_s']:>8.2f} s{each['reply_mb']:>9.1f} MB")
    return "\n".join(lines)


def _line(name: str, run: StallRun) -> str:
    cpu = ", ".join(f"{role} {seconds:.2f} s" for role, seconds in run.cpu_s.items())
    return f"{name:<26}{run.gap_ms:>8.0f} ms, reply {run.reply_s:.2f} s, {run.reply_mb:.1f} MB; CPU {cpu}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
