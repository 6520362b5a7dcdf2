"""`ramet bench tracing`: what tracing takes of the pipeline's throughput, off and on. The load of `bench pipeline`.

    off     without a receiver of traces: headers are read, and times of stages kept
    on      the same, every request sampled, its spans sent to a receiver in a process of its own

What `off` takes beside a checkout from before tracing is a question for `ramet bench pipelines`. A group starts a
server of each side; all stay alive, and rounds go in turn, each time in another order, so that a noisy machine is noisy
for all. Rounds are short and many: a ratio is a side's figure over that of `off` in the same turn, the median over all
turns. CPU time per token says more than tokens per second where other work shares the machine.
"""

import argparse
import contextlib
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ramet.bench import pipeline, report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.rounds import told
from ramet.bench.server import Server, started
from ramet.bench.values import positive

OFF = "off"
FIGURES = ("tokens_per_s", "cpu_us_per_token")


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        turns = [turn for group in range(options.groups) for turn in _group(options, group)]
    except BadOption as error:
        print(f"ramet bench tracing: {error}", file=sys.stderr)
        return 1
    record = {
        "bench": "tracing",
        **stamp.stamp(stamp.command_line("tracing", argv)),
        **{name: getattr(options, name) for name in ("streams", "input_len", "output_len", "repeats")},
        **summary(turns),
    }
    for side, figures in record["sides"].items():
        print(f"{side:<8}" + "".join(f"{name} {value:12,.2f}   " for name, value in figures.items()))
    for side, ratios in record["over_off"].items():
        print(
            f"{side} / {OFF}: "
            + ", ".join(f"{name} {r['median']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for name, r in ratios.items())
        )
    report.append_line(options.output_file, record)
    return 0


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="ramet bench tracing", description="What tracing takes of the pipeline.")
    p.add_argument("--streams", type=positive, default=128, help="concurrent streams, default 128")
    p.add_argument("--input-len", type=positive, default=16, help="tokens of each prompt, default 16")
    p.add_argument("--output-len", type=positive, default=128, help="tokens of each stream, default 128")
    p.add_argument("--repeats", type=positive, default=1, help="loads that are one round, default 1")
    p.add_argument("--groups", type=positive, default=2, help="starts of all servers, default 2")
    p.add_argument("--turns", type=positive, default=100, help="rounds of each server, default 100")
    p.add_argument("--output-file", type=Path, default=report.results_file("tracing"), help=report.RESULTS_HELP)
    return p


Turn = dict[str, dict[str, float]]  # by side: its figures


def _group(options: argparse.Namespace, group: int) -> Iterator[Turn]:
    """Turns of servers that have just started and have had a load that does not count."""
    order = random.Random(group)
    options.serve, options.chat, options.tools = [], False, False
    with ExitStack() as stack:
        sides = _started(options, stack)
        options.model = pipeline.first_model(sides[OFF].url)
        for server in sides.values():
            run_fast(pipeline.one_round(server.url, options, server.pid))
        for _ in range(options.turns):
            names = order.sample(list(sides), len(sides))
            yield {name: _round(sides[name], options) for name in names}


def _started(options: argparse.Namespace, stack: ExitStack) -> dict[str, Server]:
    asked = pipeline.scripted(options)
    receiver = stack.enter_context(_receiver())
    return {
        OFF: stack.enter_context(started(asked)),
        "on": stack.enter_context(started([*asked, "--otlp-traces-endpoint", receiver])),
    }


@contextmanager
def _receiver() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-m", "ramet.bench.otlp_sink"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1/traces"
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _round(server: Server, options: argparse.Namespace) -> dict[str, float]:
    rounds = [run_fast(pipeline.one_round(server.url, options, server.pid)) for _ in range(options.repeats)]
    tokens_per_s = sum(each.tokens for each in rounds) / sum(each.seconds for each in rounds)
    return {"tokens_per_s": tokens_per_s, "cpu_us_per_token": statistics.fmean(each.server_cpu_us for each in rounds)}


def summary(turns: Sequence[Turn]) -> dict[str, Any]:
    """The median of each figure, and of its ratio to that of `off` in the same turn, with a 95 % interval of this.

    `least_cpu_us_per_token`: the mean of the tenth of the rounds that other work has disturbed least.
    """
    sides = {side: {name: round(_median(turns, side, name), 3) for name in FIGURES} for side in sorted(turns[0])}
    for side, figures in sides.items():
        least = sorted(turn[side]["cpu_us_per_token"] for turn in turns)
        figures["least_cpu_us_per_token"] = round(statistics.fmean(least[: max(len(least) // 10, 1)]), 3)
    ratios: dict[str, dict[str, Any]] = {}
    for side in sides.keys() - {OFF}:
        of_side = {name: [turn[side][name] / turn[OFF][name] for turn in turns] for name in FIGURES}
        ratios[side] = {name: told(values) for name, values in of_side.items()}
    return {"turns": len(turns), "sides": sides, "over_off": ratios}


def _median(turns: Sequence[Turn], side: str, name: str) -> float:
    return statistics.median(turn[side][name] for turn in turns)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
