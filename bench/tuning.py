"""`ramet bench tuning`: what an option of the server moves in throughput, latency and memory.

Every variant gets a server of its own, of a 160M-shaped model with made-up weights, and the same load: prompts in
groups that share a long prefix. All variants run in turn, round by round, another one first in each. Figures are
medians over rounds; a ratio is of two figures of one round.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.offline import make_checkpoint
from ramet.bench.rounds import run_serving, turned
from ramet.bench.server import peak_bytes, started
from ramet.bench.values import positive

BASELINE = "as it comes"
VARIANTS: dict[str, list[str]] = {
    BASELINE: [],
    **{
        each: each.split()
        for each in (
            "--dtype float32", "--num-threads 1", "--chunked-prefill-size 64", "--chunked-prefill-size -1",
            "--max-running-requests 4", "--disable-radix-cache", "--schedule-policy fcfs", "--page-size 16",
            "--max-total-tokens 1536", "--tokenizer-worker-num 2",
        )
    },
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench tuning", description="What an option moves.")
    p.add_argument("--rounds", type=positive, default=3, help="default 3")
    p.add_argument("--groups", type=positive, default=4, help="prompts of a group share a prefix; default 4")
    p.add_argument("--prompts-per-group", type=positive, default=8, help="default 8")
    p.add_argument("--prefix-len", type=positive, default=256, help="tokens, default 256")
    p.add_argument("--output-len", type=positive, default=64, help="tokens, default 64")
    p.add_argument("--output-file", type=Path, default=report.results_file("tuning"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_checkpoint(Path(folder))
        for number in range(options.rounds):
            for name in turned(list(VARIANTS), number):
                runs[name].append(measure(Path(folder), VARIANTS[name], options, seed=number))
                _print(number, name, runs[name][-1])
    variants = {name: summed(each, runs[BASELINE]) for name, each in runs.items()}
    made = stamp.stamp(stamp.command_line("tuning", argv))
    load = {name: getattr(options, name) for name in ("groups", "prompts_per_group", "prefix_len", "output_len")}
    report.append_line(
        options.output_file, {"bench": "tuning", **made, "rounds": options.rounds, **load, "variants": variants}
    )
    return 0


def _print(number: int, name: str, figures: dict[str, float]) -> None:
    print(f"round {number + 1} {name:<28}" + ", ".join(f"{figure} {value:.1f}" for figure, value in figures.items()))


def measure(folder: Path, flags: list[str], options: argparse.Namespace, seed: int) -> dict[str, float]:
    argv = ["--dataset-name", "generated-shared-prefix", "--seed", str(seed)]
    argv += ["--gsp-num-groups", str(options.groups), "--gsp-prompts-per-group", str(options.prompts_per_group)]
    argv += ["--gsp-system-prompt-len", str(options.prefix_len), "--gsp-question-len", "32"]
    argv += ["--gsp-output-len", str(options.output_len)]
    with started(["--model-path", str(folder), "--max-total-tokens", "32768", *flags]) as server:
        run_serving(
            server.url, ["--dataset-name", "random-ids", "--num-prompts", "4", "--random-output-len", "8"], folder
        )
        metrics = run_serving(server.url, argv, folder)
        memory = peak_bytes(server.pid)["scheduler"]
    return {
        "tokens_per_s": metrics["output_throughput"],
        "ttft_ms": metrics["ttft_ms"]["median"],
        "itl_ms": metrics["itl_ms"]["median"],
        "p99_itl_ms": metrics["itl_ms"]["p99"],
        "memory_mib": memory / 2**20,
    }


def summed(runs: list[dict[str, float]], baseline: list[dict[str, float]]) -> dict[str, Any]:
    """Medians, and the median ratio to the baseline of the same round."""
    figures = {name: round(statistics.median(run[name] for run in runs), 1) for name in runs[0]}
    ratios = {
        name: round(statistics.median(run[name] / base[name] for run, base in zip(runs, baseline, strict=True)), 2)
        for name in runs[0]
    }
    return {**figures, "ratio": ratios}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
