"""`ramet bench against CHECKOUT`: this checkout and another one, on the loads of `bench offline`, in one run.

A group starts one process of each checkout on the same weights; both stay alive, and rounds go in turn, so that a
noisy machine is noisy for both. Every group has fresh processes, because two processes of the same code differ too
(layout of memory, start of threads). A ratio is this checkout's seconds over the other's: the mean over the rounds of
a group, then over groups, with the standard error over groups.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loads import LOADS, Load
from ramet.bench.offline import make_checkpoint
from ramet.bench.values import positive

WORKER = Path(__file__).resolve().with_name("against_worker.py")
HERE = Path(__file__).resolve().parent.parent


class Side:
    """A process of one checkout."""

    def __init__(self, process: "subprocess.Popen[str]", checkout: Path) -> None:
        self._process = process
        loaded = Path(str(self._answer()["package"])).resolve()
        if not loaded.is_relative_to(checkout.resolve()):
            raise BadOption(f"{checkout} was to be measured, but Python imports ramet from {loaded.parent}")

    def run(self, load: Load, seed: int) -> float:
        """Seconds of one round."""
        asked = {"prompts": load.prompts(seed), "output": load.output}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer["lengths"] != [load.output] * load.requests:
            raise BadOption(f"a request got {sorted(set(answer['lengths']))} tokens, must be {load.output}")
        return float(answer["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BadOption(f"a process that was measured ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench against", description="Time in process, against another checkout.")
    p.add_argument("checkout", type=Path, help="folder of the other one, such as a git worktree")
    p.add_argument("--load", choices=[load.name for load in LOADS], action="append", help="default: all")
    p.add_argument("--groups", type=positive, default=8, help="pairs of processes for each load; default 8")
    p.add_argument("--rounds", type=positive, default=4, help="of each process; default 4")
    p.add_argument("--output-file", type=Path, default=report.results_file("against"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    try:
        record = measure(options)
    except BadOption as error:
        print(f"ramet bench against: {error}", file=sys.stderr)
        return 2
    made = stamp.stamp(stamp.command_line("against", argv))
    report.append_line(options.output_file, {"bench": "against", **made, **record})
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    if not (options.checkout / "ramet" / "runtime").is_dir():
        raise BadOption(f"{options.checkout} is no checkout of ramet: it has no ramet/runtime")
    loads = [load for load in LOADS if not options.load or load.name in options.load]
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_checkpoint(Path(folder))
        compared = [compare(load, options.checkout, Path(folder), options) for load in loads]
    return {"other_commit": stamp.commit(options.checkout), "loads": compared}


def compare(load: Load, other: Path, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One load; prints and returns the ratio, and every second it comes from."""
    groups = [_group(load, other, model, number, options.rounds) for number in range(options.groups)]
    means = [statistics.mean(a / b for a, b in zip(group["this"], group["other"], strict=True)) for group in groups]
    error = statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else None
    result = {"load": load.name, "ratio": round(statistics.mean(means), 4), "groups": groups}
    shown = ""
    if error is not None:
        result["standard_error"] = round(error, 4)
        shown = f" +- {error:.3f}"
    medians = [statistics.median(s for group in groups for s in group[side]) for side in ("this", "other")]
    print(
        f"{load.name:<8} {medians[0]:8.2f} s, other {medians[1]:8.2f} s, ratio {result['ratio']:.3f}{shown}", flush=True
    )
    return result


def _group(load: Load, other: Path, model: Path, number: int, rounds: int) -> dict[str, list[float]]:
    checkouts = {"this": HERE, "other": other}
    order = list(checkouts) if number % 2 == 0 else list(reversed(checkouts))
    seconds: dict[str, list[float]] = {"this": [], "other": []}
    with ExitStack() as stack:
        sides = {name: stack.enter_context(_side(checkouts[name], model)) for name in order}
        for round_number in range(rounds):
            for name in order if round_number % 2 == 0 else reversed(order):
                seconds[name].append(round(sides[name].run(load, round_number), 4))
    return seconds


@contextmanager
def _side(checkout: Path, model: Path) -> Iterator[Side]:
    """Ready, with its first call behind it."""
    env = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    command = [sys.executable, "-P", str(WORKER), str(model)]  # -P: no module of this folder hides a package
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=checkout, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            side = Side(process, checkout)
            side.run(Load("warm-up", 1, 0, 256, 4, 1.0, 1), 0)
            yield side
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
