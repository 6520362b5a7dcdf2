"""`ramet bench penalties`: what penalties cost a server, on the six variants of SGLang's sampling page of 2024.

One server of a 160M-shaped model with made-up weights serves every variant in turn, round by round, so that a noisy
machine is noisy for all; within a round the order turns, so that no variant always comes first. A variant's cost is
1 - its output throughput / the baseline's of the same round: the median over rounds, with the interval of the order
statistics that holds the true median in at least 95 % of cases (David and Nagaraja, Order Statistics, 7.1). Beside it,
the CPU time of all the server's processes per output token.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ramet.bench import report, stamp
from ramet.bench.offline import make_checkpoint
from ramet.bench.rounds import interval, run_serving, turned
from ramet.bench.server import cpu_seconds, started
from ramet.bench.values import positive

BASELINE = "baseline"
ALL = {"frequency_penalty": 1.1, "presence_penalty": 1.1, "repetition_penalty": 0.1, "min_new_tokens": 5}
VARIANTS: dict[str, dict[str, float]] = {
    BASELINE: {},
    "all together": ALL,
    **{name.replace("_", " "): {name: value} for name, value in ALL.items()},
}


class PenaltyRun(NamedTuple):
    tokens_per_s: float
    cpu_us: float  # of all processes of the server, per output token


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench penalties", description="What penalties cost a server.")
    p.add_argument("--rounds", type=positive, default=7, help="default 7")
    p.add_argument("--num-prompts", type=positive, default=48, help="of each run, default 48")
    p.add_argument("--random-input-len", type=positive, default=64, help="tokens, default 64")
    p.add_argument("--random-output-len", type=positive, default=128, help="tokens, default 128")
    p.add_argument("--output-file", type=Path, default=report.results_file("penalties"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    if options.random_output_len < ALL["min_new_tokens"]:
        p.error(f"--random-output-len is {options.random_output_len}, must be at least {ALL['min_new_tokens']}")
    runs: dict[str, list[PenaltyRun]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_checkpoint(Path(folder))
        with started(["--model-path", folder, "--max-total-tokens", "32768"]) as server:
            load(server.url, {}, options, seed=0, folder=Path(folder))  # a first one warms everything
            for number in range(options.rounds):
                for name in turned(list(VARIANTS), number):
                    before = sum(cpu_seconds(server.pid).values())
                    metrics = load(server.url, VARIANTS[name], options, seed=number + 1, folder=Path(folder))
                    spent = sum(cpu_seconds(server.pid).values()) - before
                    run = PenaltyRun(metrics["output_throughput"], spent / metrics["output_tokens"] * 1e6)
                    runs[name].append(run)
                    print(f"round {number + 1} {name:<20}{run.tokens_per_s:>9.1f} tok/s{run.cpu_us:>9.0f} us/token")
    record = {"rounds": options.rounds, "variants": {name: summed(each, runs[BASELINE]) for name, each in runs.items()}}
    print(table(record["variants"]))
    made = stamp.stamp(stamp.command_line("penalties", argv))
    report.append_line(options.output_file, {"bench": "penalties", **made, **record})
    return 0


def load(url: str, extra: dict[str, float], options: argparse.Namespace, seed: int, folder: Path) -> dict[str, Any]:
    """One run's metrics."""
    argv = ["--dataset-name", "random-ids", "--num-prompts", str(options.num_prompts), "--random-range-ratio", "1"]
    argv += ["--random-input-len", str(options.random_input_len), "--random-output-len", str(options.random_output_len)]
    return run_serving(url, [*argv, "--seed", str(seed), "--extra-request-body", json.dumps(extra)], folder)


def summed(runs: list[PenaltyRun], baseline: list[PenaltyRun]) -> dict[str, Any]:
    """Medians over rounds; costs are shares of the baseline of the same round."""
    costs = [1 - run.tokens_per_s / base.tokens_per_s for run, base in zip(runs, baseline, strict=True)]
    low, high = interval(costs)
    return {
        "tokens_per_s": round(statistics.median(run.tokens_per_s for run in runs), 1),
        "cpu_us_per_token": round(statistics.median(run.cpu_us for run in runs), 1),
        "cost": round(statistics.median(costs), 4),
        "cost_interval": [round(low, 4), round(high, 4)],
    }


def table(variants: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'variant':<20}{'tok/s':>9}{'us CPU/tok':>12}{'cost':>9}   interval"]
    for name, v in variants.items():
        low, high = v["cost_interval"]
        cost = f"{v['cost']:>9.2%}   [{low:.2%}, {high:.2%}]"
        lines.append(f"{name:<20}{v['tokens_per_s']:>9.1f}{v['cpu_us_per_token']:>12.1f}{cost}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
