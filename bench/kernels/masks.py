"""`ramet bench masks`: time to fill the masks of a step under constraints, and to apply them to its logits.

32 outputs run in a scheduler, with a vocabulary of 128,256 made up from a seed. Their tokens are drawn at random among
those that their masks allow, so that each output is at another place of its constraint; where one ends, another begins.
`filling` is the backend's call for all rows, `making` all that the scheduler does to make the masks of a step, and
`applying` the kernel that writes them into the logits, beside a sum over logits of that size in the same step with as
many threads. Steps in which all rows draw count alone. Of filling the CPU time of the process is given as well, which
tells a slow library from a machine with other work. A bound is set for the cases of JSON: a median of 1 ms.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from ramet.bench import report, stamp, vocabulary
from ramet.bench.constrained_cases import ConstrainedCase, cases
from ramet.bench.errors import BadOption
from ramet.bench.one_thread import Grammars, KnownRunner, OneThread, legal, vocabulary_of
from ramet.bench.values import positive
from ramet.ipc.spec import Constraint
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import Batch, StepResult
from ramet.runtime.grammar.backends import BACKENDS, installed
from ramet.runtime.grammar.base import BackendName, CompiledConstraint, Grammar, GrammarBackend, Vocabulary, Whitespace

ALL_JSON = "all of JSON, mixed"
SHORTEST, LONGEST = 20, 150  # tokens of an output, at most
CLOSING = 0.35  # of the draws: a token that ends a string or an object, if one is allowed; few of all tokens do
PROMPT = [1, 2, 3]
WIDTHS = (16, 8, 8, 8, 8, 9, 10, 9)  # of the table's columns
FIRST_STEPS = 40  # that do not count: all outputs are at their beginning


@dataclass(frozen=True)
class MaskTime:
    """Microseconds of one step."""

    filling: float
    filling_cpu: float
    making: float
    applying: float
    read: float


class TimedBackend:
    """Adds up what filling masks takes."""

    def __init__(self, backend: GrammarBackend) -> None:
        self._backend, self.seconds, self.cpu_seconds = backend, 0.0, 0.0
        self.name, self.canonical = backend.name, backend.canonical
        self.counts_items, self.unbounded = backend.counts_items, backend.unbounded
        self.reads_in_place = backend.reads_in_place

    def prepare(self, constraint: Constraint, whitespace: Whitespace) -> bytes:
        return self._backend.prepare(constraint, whitespace)

    def load(self, prepared: bytes | memoryview) -> CompiledConstraint:
        return self._backend.load(prepared)

    def fill_masks(self, grammars: Sequence[Grammar], rows: Sequence[int], bits: Ints) -> None:
        started, cpu = time.perf_counter(), time.process_time()
        self._backend.fill_masks(grammars, rows, bits)
        self.seconds += time.perf_counter() - started
        self.cpu_seconds += time.process_time() - cpu

    def take(self) -> tuple[float, float]:
        """Seconds, and CPU seconds, since it was last asked."""
        spent, self.seconds, self.cpu_seconds = (self.seconds, self.cpu_seconds), 0.0, 0.0
        return spent


class Walk:
    """A launched step: it draws when its masks come, and notes when they came."""

    runs = True

    def __init__(self, runner: "WalkRunner", batch: Batch) -> None:
        self._runner, self._batch = runner, batch
        self._tokens = np.zeros(len(batch.draws), np.int32)
        self._launched = time.perf_counter()

    def draw(self, allowed: Ints) -> None:
        making = time.perf_counter() - self._launched
        masked = self._batch.sampling.masked
        assert masked is not None
        for row, bits in zip(masked, allowed, strict=True):
            self._tokens[row] = self._runner.choose(bits)
        self._runner.masks_came(allowed, making)

    def result(self) -> StepResult:
        return StepResult(self._tokens)


class WalkRunner(KnownRunner):
    """Draws at random what the masks allow; `spent` has the steps in which every row drew."""

    def __init__(self, tokens: Vocabulary, rows: int, kernels: "Applied", seed: int) -> None:
        super().__init__(tokens.size, rows, 2 * LONGEST)
        self._draw, self._kernels = random.Random(seed), kernels
        self.backend: TimedBackend
        self.spent: list[MaskTime] = []
        pieces = (tokens.tokenizer.token_bytes(i) or b"" for i in range(tokens.size))
        self._closing = np.array([any(mark in piece for mark in b'"}]') for piece in pieces])

    def timed(self, backend: GrammarBackend) -> GrammarBackend:
        self.backend = TimedBackend(backend)
        return self.backend

    def launch(self, batch: Batch) -> Walk:
        return Walk(self, batch)

    def choose(self, bits: Ints) -> int:
        allowed = legal(bits, self.facts.vocab_size)
        if self._draw.random() < CLOSING and len(closing := allowed[self._closing[allowed]]):
            allowed = closing
        return int(allowed[self._draw.randrange(len(allowed))])

    def masks_came(self, allowed: Ints, making: float) -> None:
        filling = self.backend.take()
        if len(allowed) == self.facts.max_running_requests:
            seconds = *filling, making, self._kernels.mask_s(allowed), self._kernels.read_s()
            self.spent.append(MaskTime(*(each * 1e6 for each in seconds)))


class Applied:
    """Logits of a step, and the time that a pass over them takes. Four take turns, so that none was just used."""

    def __init__(self, rows: int, vocab_size: int, num_threads: int) -> None:
        import torch

        from ramet.kernels import reference
        from ramet.runtime.engine.devices.cpu_kernels import compiled_ops

        torch.set_num_threads(num_threads)
        self._kernels = compiled_ops(num_threads) or reference
        self._logits = cycle([torch.randn(rows, vocab_size) for _ in range(4)])
        self._rows, self._from_numpy = torch.arange(rows, dtype=torch.int32), torch.from_numpy

    def mask_s(self, allowed: Ints) -> float:
        logits, masks = next(self._logits), self._from_numpy(allowed)
        started = time.perf_counter()
        self._kernels.mask(logits, self._rows, masks)
        return time.perf_counter() - started

    def read_s(self) -> float:
        logits = next(self._logits)
        started = time.perf_counter()
        logits.sum()
        return time.perf_counter() - started


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    figures: dict[str, dict[str, Any]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
            vocabulary.write(Path(folder), options.vocab_size)
            tokens = vocabulary_of(Path(folder))
            for name in options.backend or filter(installed, BACKENDS):
                figures[name] = measure(tokens, name, options)
    except BadOption as error:
        print(f"ramet bench masks: {error}", file=sys.stderr)
        return 1
    made = stamp.stamp(stamp.command_line("masks", argv))
    chosen = {name: getattr(options, name) for name in ("rows", "vocab_size", "steps", "num_threads", "jump_forward")}
    report.append_line(options.output_file, {"bench": "masks", **made, **chosen, "backends": figures})
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench masks", description=__doc__, formatter_class=formatter)
    p.add_argument("--rows", type=positive, default=32, help="outputs that run together, default 32")
    p.add_argument("--vocab-size", type=positive, default=128_256, help="default 128256")
    p.add_argument("--steps", type=positive, default=400, help="that count, of each case, default 400")
    p.add_argument("--num-threads", type=positive, default=1, help="of a pass over the logits, default 1")
    p.add_argument("--jump-forward", choices=["ff", "off"], help="default: ff where the backend can")
    p.add_argument("--backend", choices=list(BACKENDS), action="append", help="default: all that are installed")
    p.add_argument("--case", choices=[*cases(), ALL_JSON], action="append", help="default: all")
    p.add_argument("--output-file", type=Path, default=report.results_file("masks"), help=report.RESULTS_HELP)
    return p


def measure(tokens: Vocabulary, backend: BackendName, options: argparse.Namespace) -> dict[str, Any]:
    """Case -> what a step takes, or why it cannot be compiled."""
    every = cases()
    groups = {name: [case] for name, case in every.items()} | {ALL_JSON: [c for c in every.values() if c.is_json]}
    kernels, figures = Applied(options.rows, tokens.size, options.num_threads), {}
    titles = ("filling: median", "p90", "p99", "max", "CPU", "making", "applying", "a read")
    print(f"{backend:<22}" + "".join(f"{title:>{width}}" for title, width in zip(titles, WIDTHS, strict=True)))
    for name in options.case or groups:
        figures[name] = play(tokens, backend, groups[name], kernels, options)
        print(f"{name:<22}{_line(figures[name])}", flush=True)
    return figures


def play(
    tokens: Vocabulary,
    backend: BackendName,
    group: Sequence[ConstrainedCase],
    kernels: Applied,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Random outputs of these cases until enough steps have counted."""
    runner = WalkRunner(tokens, options.rows, kernels, seed=0)
    grammars = Grammars(tokens, runner.timed)
    top = OneThread(
        runner, grammars, tokens.tokenizer, grammar_backend=backend, jump_forward=options.jump_forward
    )  # fmt: skip
    draw, turn = random.Random(0), cycle(group)
    running = {top.submit(next(turn).constraint, draw.randint(SHORTEST, LONGEST), PROMPT) for _ in range(options.rows)}
    for _ in top.turns():
        for uid in [uid for uid in running if uid in top.finished]:
            running.discard(uid)
            if top.finished[uid].aborted:
                return {"refused": str(top.finished[uid].error)}
            if len(runner.spent) < FIRST_STEPS + options.steps:
                running.add(top.submit(next(turn).constraint, draw.randint(SHORTEST, LONGEST), PROMPT))
    return summed(runner.spent[FIRST_STEPS:])


def summed(steps: Sequence[MaskTime]) -> dict[str, Any]:
    return {
        "steps": len(steps),
        "filling_us": spread(step.filling for step in steps),
        "filling_cpu_us": spread(step.filling_cpu for step in steps),
        "making_us": spread(step.making for step in steps),
        "applying_us": spread(step.applying for step in steps),
        "read_us": spread(step.read for step in steps),
        "applying_in_reads": round(statistics.median(step.applying / step.read for step in steps), 2),
    }


def spread(values: Iterable[float]) -> dict[str, float]:
    ordered = np.sort(list(values))
    quantiles = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(float(np.quantile(ordered, at)), 1) for name, at in quantiles.items()}


def _line(figures: dict[str, Any]) -> str:
    if "refused" in figures:
        return f"  {figures['refused']}"
    others = (figures[name]["median"] for name in ("filling_cpu_us", "making_us", "applying_us", "read_us"))
    shown = zip((*figures["filling_us"].values(), *others), WIDTHS, strict=True)
    return "".join(f"{value:>{width}.0f}" for value, width in shown) + "  us"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
