"""`ramet bench queue`: what the scheduler's own work takes of a step when much waits and much is cached.

64 requests run, 10,000 wait, and the tree holds a million tokens: documents of 1,000 tokens in groups that share their
first half. Waiting prompts begin with these documents. No model: what is timed is everything else that one turn of the
scheduler does, in four situations: all rows decode ("decode"), one request ends and another is admitted ("turnover"),
8 requests arrive ("arrivals"), and the pool is full, so that each admission evicts ("eviction"). A real step's time
is measured in the same run, on the 160M shape with 64 rows, unless --step-ms says it.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from ramet.bench import report, stamp
from ramet.bench.offline import make_checkpoint
from ramet.bench.one_thread import KnownRunner, OneThread
from ramet.bench.programs.words import write_model
from ramet.bench.values import positive
from ramet.runtime.engine.batch import Batch, Done, StepResult
from ramet.runtime.text.tokenizer import Tokenizer

DOCUMENT, GROUP = 1000, 4  # tokens of a document, and documents that share their first half
VOCABULARY = 500
ARRIVALS = 8  # in a turn
TURNS = 200  # that are timed in each situation
TARGET = 0.02  # of a step
CONTEXT = 2048
STEP_ROWS, STEP_LEN = 64, 256


class SameToken(KnownRunner):
    """Draws one token whatever it reads, at once."""

    def launch(self, batch: Batch) -> Any:
        return Done(StepResult(np.full(len(batch.draws), 7, np.int32)))


class QueuedCrowd:
    """A scheduler with so many requests that run and wait, over so many cached tokens."""

    def __init__(self, running: int, waiting: int, cached: int, *, room: int) -> None:
        """`room`: tokens of the pool beside those that are cached."""
        self._draw = random.Random(0)
        own = DOCUMENT - DOCUMENT // 2 + DOCUMENT // 2 / GROUP  # tokens that a document adds to the tree
        documents = self._documents(int(cached / own))
        runner = SameToken(VOCABULARY, running, CONTEXT)
        runner.facts = replace(runner.facts, max_total_tokens=cached + room)
        with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
            write_model(Path(folder))
            self.top = OneThread(runner, None, Tokenizer.from_folder(Path(folder)))
        self._heads = documents
        self._fill(documents)
        self._running = running
        for _ in range(running):
            self.top.submit(None, CONTEXT - DOCUMENT - 8, self._prompt())
        self.time_turns(4)  # all run
        self.arrive(waiting)
        self.time_turns(4)

    def arrive(self, num: int, output: int = CONTEXT - DOCUMENT - 8) -> None:
        for _ in range(num):
            self.top.submit(None, output, self._prompt())

    def time_turns(self, num: int, before: Callable[[], None] = lambda: None) -> list[float]:
        """Seconds of each turn, taking in messages included; `before` each, something may be sent."""
        seconds = []
        for _ in range(num):
            before()
            started = time.perf_counter()
            self.top.scheduler.receive(block=False)
            self.top.scheduler.turn()
            seconds.append(time.perf_counter() - started)
            self.top.take_steps()
        return seconds

    def end_one(self) -> None:
        """The oldest running request is aborted: its row is free for the first of the queue."""
        self.top.abort(next(iter(self.top.scheduler.running)).uid)

    @property
    def sizes(self) -> dict[str, int]:
        scheduler = self.top.scheduler
        return {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "cached_tokens": scheduler.cache.tree_tokens,
        }

    def _documents(self, num: int) -> list[list[int]]:
        heads = [self._ids(DOCUMENT // 2) for _ in range(-(-num // GROUP))]
        return [heads[i // GROUP] + self._ids(DOCUMENT - DOCUMENT // 2) for i in range(num)]

    def _prompt(self) -> list[int]:
        return [*self._draw.choice(self._heads), *self._ids(4)]

    def _fill(self, documents: list[list[int]]) -> None:
        """Compute them as prompts without output."""
        for document in documents:
            self.top.submit(None, 0, [*document, 3])
        for _ in self.top.turns():
            pass

    def _ids(self, num: int) -> list[int]:
        return [self._draw.randrange(8, VOCABULARY) for _ in range(num)]


def measure(options: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds of the turns of each situation, and the sizes."""
    crowd = QueuedCrowd(options.running, options.waiting, options.cached, room=5 * CONTEXT * options.running)
    sizes = crowd.sizes
    found = {
        "decode": crowd.time_turns(options.turns),
        "turnover": crowd.time_turns(options.turns, crowd.end_one),
        "arrivals": crowd.time_turns(options.turns, lambda: crowd.arrive(ARRIVALS)),
    }
    return {**found, "eviction": evictions(options)}, sizes


def evictions(options: argparse.Namespace) -> list[float]:
    full = QueuedCrowd(options.running, options.waiting, options.cached, room=0)
    return full.time_turns(options.turns, full.end_one)


def step_seconds(rows: int, length: int) -> float:
    """Of a real decode step of the 160M shape, by an LLM with so many requests."""
    from ramet.runtime.llm import LLM

    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_checkpoint(Path(folder))
        tokens = rows * (length + 40)
        with LLM(str(folder), max_total_tokens=tokens, random_seed=0, log_level="warning") as llm:
            draw = random.Random(0)
            prompts = [[draw.randrange(3, 30000) for _ in range(length)] for _ in range(rows)]
            params = {"temperature": 0, "ignore_eos": True}
            llm.generate(prompts, {**params, "max_new_tokens": 1})  # now their prefixes are cached
            before = llm.phase_seconds()
            llm.generate(prompts, {**params, "max_new_tokens": 32})
            after = llm.phase_seconds()
    spent = {name: after[name] - before.get(name, 0.0) for name in after}
    return (spent["forward"] + spent["sample"]) / spent["steps"]


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench queue", description="The scheduler's work beside a long queue.")
    p.add_argument("--running", type=positive, default=64, help="default 64")
    p.add_argument("--waiting", type=positive, default=10_000, help="default 10000")
    p.add_argument("--cached", type=positive, default=1_000_000, help="tokens in the tree, default a million")
    p.add_argument("--turns", type=positive, default=TURNS, help=f"that are timed, default {TURNS}")
    p.add_argument("--step-ms", type=float, help="of a real step; default: measured, on the 160M shape")
    p.add_argument("--output-file", type=Path, default=report.results_file("queue"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    step_s = options.step_ms / 1e3 if options.step_ms else step_seconds(STEP_ROWS, STEP_LEN)
    found, sizes = measure(options)
    print(f"{sizes['running']} run, {sizes['waiting']} wait, {sizes['cached_tokens']} cached tokens", end="; ")
    print(f"a step takes {step_s * 1e3:.1f} ms")
    figures = {}
    for name, seconds in found.items():
        middle, longest = statistics.median(seconds), max(seconds)
        share = middle / step_s
        held = "holds" if share < TARGET else "MISSED"
        print(f"{name:<10} {middle * 1e3:7.3f} ms a turn, {share:6.2%} of a step (asked: {TARGET:.0%}, {held}), "
              f"longest {longest * 1e3:.3f} ms")  # fmt: skip
        figures[name] = {"ms": round(middle * 1e3, 4), "longest_ms": round(longest * 1e3, 4), "share": round(share, 5)}
    made = stamp.stamp(stamp.command_line("queue", argv))
    record = {"bench": "queue", **made, **sizes, "step_ms": round(step_s * 1e3, 2), "turns": figures}
    report.append_line(options.output_file, record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
