"""`ramet bench overhead`: what keeping the tree costs, beside the forward passes. Section 6.4.4 of the SGLang paper.

Two loads of 256 + 256 tokens in and 256 out: "subtrees" (16 prefixes of 256 tokens, 8 prompts each) and "unshared",
where the tree is of no use. Each runs with the cache and without, in turn, in one thread, so that every call of the
cache can be timed. Without a model (`--runner scripted`, all 128 requests) the seconds are those of the scheduler
alone; with one (fewer requests, the same lengths) they stand beside the forward passes. What the tree costs is the
time inside the cache with it, less the time there without it (pages are allocated all the same), and besides what
planning and applying steps takes longer.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.one_thread import OneThread
from ramet.bench.programs import traces
from ramet.bench.programs.words import write_model
from ramet.bench.rounds import turned
from ramet.bench.values import positive
from ramet.runtime.config import Args, make_args
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.scheduler.process.start import make_runner
from ramet.runtime.text.tokenizer import Tokenizer

LOADS: dict[str, Callable[[int], list[traces.Shot]]] = {"subtrees": traces.shared_and_own, "unshared": traces.unshared}
PAPER = {"subtrees": 0.07 / 17.6, "unshared": 0.005}  # share of the forward passes
TARGET = 0.01
CALLS = ("peek", "acquire", "publish", "release", "allocate", "free", "shorten", "hold")
FEW = 8  # requests beside a model
POOL_TOKENS = 128 * 768


@dataclass(frozen=True)
class Spent:
    """Seconds of one round. `host`: planning steps and applying their results, the cache included."""

    wall: float
    cache: float
    host: float
    forward: float
    steps: int


class OverheadWatch:
    """Adds up the time inside some methods of an object; a method that they call counts once."""

    def __init__(self, watched: Any, names: Sequence[str]) -> None:
        self.seconds, self._inside = 0.0, False
        for name in names:
            setattr(watched, name, self._timed(getattr(watched, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            if self._inside:
                return method(*args)
            self._inside, started = True, time.perf_counter()
            try:
                return method(*args)
            finally:
                self.seconds += time.perf_counter() - started
                self._inside = False

        return timed


def play(runner: LoadedRunner, tokenizer: Tokenizer, shots: Sequence[traces.Shot], *, cached: bool) -> Spent:
    top = OneThread(runner, None, tokenizer, disable_radix_cache=not cached)
    watch = OverheadWatch(top.scheduler.cache, CALLS)
    for shot in shots:
        top.submit(None, shot.output, tokenizer.encode(shot.head + shot.question))
    started = time.perf_counter()
    for _ in top.turns():
        pass
    wall, reporter = time.perf_counter() - started, top.reporter
    assert all(len(ids) == shots[0].output for ids in top.outputs.values()), "an output ended early"
    phases = reporter.phase_seconds
    return Spent(wall, watch.seconds, phases["plan"] + phases["results"], phases["forward"], reporter.steps)


def measure(args: Args, options: argparse.Namespace) -> dict[str, Any]:
    tokenizer = Tokenizer.from_folder(args.tokenizer_folder)
    runner = make_runner(args, tokenizer, lambda name, seconds: None)
    found = {}
    for load, make in LOADS.items():
        shots = make(options.requests)
        rounds: dict[str, list[Spent]] = {"tree": [], "off": []}
        for number in range(options.rounds + 1):
            for name in turned(list(rounds), number):
                spent = play(runner, tokenizer, shots, cached=name == "tree")
                if number:  # the first round warms
                    rounds[name].append(spent)
        found[load] = outcome(load, len(shots), rounds)
    return found


def outcome(load: str, requests: int, rounds: dict[str, list[Spent]]) -> dict[str, Any]:
    """Prints and returns the medians."""
    middle = {name: medians(spent) for name, spent in rounds.items()}
    tree, off = middle["tree"], middle["off"]
    cost, steps = tree["cache"] - off["cache"], tree["steps"]
    share = cost / tree["forward"] if tree["forward"] else None
    print(
        f"{load:<9} {requests} requests: the tree takes {cost * 1000:.1f} ms, {cost / steps * 1e6:.1f} us a step, "
        f"{cost / requests * 1e6:.0f} us a request; planning and applying {tree['host']:.3f} s with it, "
        f"{off['host']:.3f} s without"
    )
    if share is not None:
        print(
            f"{'':<9} {share:.2%} of {tree['forward']:.1f} s of forward passes (paper: {PAPER[load]:.1%}, asked: at "
            f"most {TARGET:.0%}); {tree['wall']:.1f} s in all, {off['wall']:.1f} s without the cache"
        )
    return {"requests": requests, "tree_s": round(cost, 5), "share_of_forward": share, "median": middle}


def medians(rounds: Sequence[Spent]) -> dict[str, float]:
    names = [field.name for field in fields(Spent)]
    return {name: round(statistics.median(getattr(each, name) for each in rounds), 5) for name in names}


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench overhead", description="What keeping the tree costs.")
    p.add_argument("--runner", choices=("model", "scripted"), default="scripted", help="scripted: no model")
    p.add_argument("--requests", type=positive, help=f"default: 128, {FEW} with a model")
    p.add_argument("--rounds", type=positive, default=3)
    p.add_argument("--num-threads", type=positive)
    p.add_argument("--output-file", type=Path, default=report.results_file("overhead"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    options.requests = options.requests or (128 if options.runner == "scripted" else FEW)
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        write_model(Path(folder))
        args = make_args(
            model_path=folder, load_format="dummy", random_seed=0, runner=options.runner,
            max_total_tokens=POOL_TOKENS if options.runner == "scripted" else options.requests * 768 + 1024,
            num_threads=options.num_threads, context_length=4096,
        )  # fmt: skip
        loads = measure(args, options)
    made = stamp.stamp(stamp.command_line("overhead", argv))
    report.append_line(options.output_file, {"bench": "overhead", **made, "runner": options.runner, "loads": loads})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
