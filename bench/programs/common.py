"""One workload under one set of switches: how it is run, and what is counted.

The switches are the paper's ablations (sections 6.4.1 and 6.4.2). `cache`, `policy`, `extend` and `jump_forward` are
the engine's, so each set of them has an LLM of its own; `hints` are the interpreter's; without `parallel` a program
waits for each call before it makes the next. The pool has the 15,000 tokens of the paper's long-document benchmark.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ramet.bench.errors import BadOption
from ramet.bench.programs.best_cache import best_cached
from ramet.bench.programs.catalogue import Workload
from ramet.bench.programs.record import CallRecord, RecordingLLM

POOL_TOKENS = 15000
# of a runner without a model: a device on which a prompt of 1,000 tokens takes as long as ten steps of decoding. With
# none at all, programs would be slower than the device, and what they come back to would be gone before they ask.
STEP_MS, TOKEN_US = 10.0, 100.0


@dataclass(frozen=True)
class Switches:
    cache: str = "tree"  # tree, list, off
    policy: str = "lpm"
    hints: bool = True
    parallel: bool = True
    extend: bool = True
    jump_forward: bool = True

    @property
    def engine(self) -> "Switches":
        """Of the LLM: those that share it are equal here."""
        return replace(self, hints=True, parallel=True)

    def options(self) -> dict[str, Any]:
        """As `ramet serve` has them."""
        return {
            "disable_radix_cache": self.cache == "off",
            "prefix_cache": "list" if self.cache == "list" else "tree",
            "schedule_policy": self.policy,
            "attention_backend": "auto" if self.extend else "gather",
            "jump_forward": None if self.jump_forward else "off",
        }


VARIANTS = {
    "all": Switches(),
    # hints are refused where no prefix can be held, but giving a lease back that nobody has computes its prompt
    "no cache": Switches(cache="off", hints=False),
    "neither": Switches(cache="off", hints=False, parallel=False),
    "no tree": Switches(cache="list", hints=False),
    "no hints": Switches(hints=False),
    "no parallelism": Switches(parallel=False),
    "no extend kernel": Switches(extend=False),
    "no jump-forward": Switches(jump_forward=False),
    "fcfs": Switches(policy="fcfs"),
    "random": Switches(policy="random"),
    "dfs-weight": Switches(policy="dfs-weight"),
}


@dataclass(frozen=True)
class Figures:
    """Tokens of all requests, the interpreter's hints included. `best_cached`: what an infinite cache would find."""

    programs: int
    requests: int
    wall_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    best_cached_tokens: int
    prefill_tokens: int
    steps: int
    retractions: int
    request_s: float  # of a request from its call to its reply, the median
    latency_s: float | None = None  # of one program at a time

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    @property
    def best_hit_rate(self) -> float:
        return self.best_cached_tokens / self.prompt_tokens

    @property
    def of_best(self) -> float | None:
        """None where nothing could be found."""
        return self.cached_tokens / self.best_cached_tokens if self.best_cached_tokens else None

    @property
    def batch(self) -> float:
        """Requests that are in a step on average, if each token of an output is a step's."""
        return self.output_tokens / self.steps

    @property
    def programs_per_s(self) -> float:
        return self.programs / self.wall_s


def make_llm(folder: Path, switches: Switches, *, scripted: bool, **more: Any) -> RecordingLLM:
    pace = {"scripted_step_ms": STEP_MS, "scripted_token_us": TOKEN_US} if scripted else {}
    return RecordingLLM(
        model_path=str(folder), load_format="dummy", random_seed=0, max_total_tokens=POOL_TOKENS,
        context_length=POOL_TOKENS, runner="scripted" if scripted else "model", log_level="warning",
        **{**pace, **switches.options(), **more},
    )  # fmt: skip


def run(llm: RecordingLLM, workload: Workload, num: int, switches: Switches, *, at_once: int) -> Figures:
    """From an empty cache."""
    llm.flush_cache()
    llm.record, before = CallRecord(), llm.state()
    arguments = workload.arguments(num, serial=not switches.parallel)
    started = time.perf_counter()
    run_all(llm, workload, arguments, switches, at_once)
    wall_s = time.perf_counter() - started
    llm.state()  # an answer of the event loop: what programs left to be done has begun
    llm.record.settle()
    spent = {name: value - before[name] for name, value in llm.state().items() if isinstance(value, int)}
    sent = llm.record.sent
    return Figures(
        programs=len(arguments),
        requests=len(sent),
        wall_s=wall_s,
        prompt_tokens=sum(len(each.prompt) for each in sent),
        output_tokens=sum(len(each.output) for each in sent),
        cached_tokens=spent["cached_tokens"],
        best_cached_tokens=sum(best_cached(sent)),
        prefill_tokens=spent["prefill_tokens"],
        steps=spent["steps"],
        retractions=spent["retractions"],
        request_s=statistics.median(each.ended - each.arrived for each in sent),
    )


def run_all(
    llm: RecordingLLM, workload: Workload, arguments: Sequence[dict[str, Any]], switches: Switches, at_once: int
) -> None:
    """Raises BadOption where a program fails."""
    options = {"temperature": 0, "ignore_eos": True, "hints": switches.hints, "backend": llm}
    for state in workload.program.run_batch(arguments, num_threads=at_once, on_error="return", **options):
        if (error := state.error()) is not None:
            raise BadOption(f"a program of {workload.name} failed: {error}")


def latency(llm: RecordingLLM, workload: Workload, switches: Switches) -> float:
    """Seconds of a program that is alone."""
    return run(llm, workload, 1, switches, at_once=1).wall_s
