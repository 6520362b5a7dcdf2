"""`ramet bench programs`: the workloads of section 6 of the SGLang paper in the language, on an LLM in process.

With a model of the 160M class each workload runs with everything on and without the prefix cache: a few programs, of
the paper's lengths, for programs per second and, one program at a time, latency. `--hit-rates` runs all programs of
the paper's size on a runner without a model and asks one question: how much of what an infinite cache finds does a
pool of 15,000 tokens find, with 64 programs at once? `--variant` adds the paper's ablations to either.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.programs.catalogue import BY_NAME, WORKLOADS, Workload
from ramet.bench.programs.common import POOL_TOKENS, VARIANTS, Figures, Switches, latency, make_llm, run
from ramet.bench.programs.record import RecordingLLM
from ramet.bench.programs.words import write_model
from ramet.bench.values import positive

WHOLE, BASELINE = "all", "no cache"
MEAN_OF_BEST, LEAST_OF_BEST = 0.96, 0.90  # asked of the hit rates
HEAD = (
    f"{'workload':<22}{'variant':<18}{'programs':>9}{'prog/s':>9}{'latency s':>10}{'hit rate':>9}{'of best':>9}"
    f"{'prefill':>9}{'steps':>7}"
)


class Engines:
    """An LLM for each set of the engine's switches, started when it is first needed."""

    def __init__(self, folder: Path, scripted: bool, threads: int | None) -> None:
        self._folder, self._scripted, self._threads = folder, scripted, threads
        self._started: dict[Switches, RecordingLLM] = {}

    def of(self, switches: Switches) -> RecordingLLM:
        if switches.engine not in self._started:
            self._started[switches.engine] = make_llm(
                self._folder, switches, scripted=self._scripted, num_threads=self._threads
            )
        return self._started[switches.engine]

    def close(self) -> None:
        for llm in self._started.values():
            llm.close()


def measure(
    engines: Engines, workload: Workload, variants: Iterable[str], options: argparse.Namespace
) -> dict[str, Figures]:
    """Every variant of one workload, each from an empty cache; prints a row for each."""
    num = options.programs or (workload.many if options.hit_rates else workload.few)
    found = {}
    for name in variants:
        switches, llm = VARIANTS[name], engines.of(VARIANTS[name])
        if workload.compiles:
            run(llm, workload, 1, switches, at_once=1)
        figures = run(llm, workload, num, switches, at_once=workload.at_once)
        if not options.hit_rates:
            figures = replace(figures, latency_s=latency(llm, workload, 1, switches))
        print(row(workload.name, name, figures), flush=True)
        found[name] = figures
    if not options.hit_rates and {WHOLE, BASELINE} <= found.keys():
        print(against_the_paper(workload, found))
    return found


def row(workload: str, variant: str, each: Figures) -> str:
    seconds = "" if each.latency_s is None else f"{each.latency_s:.2f}"
    of_best = "-" if each.of_best is None else f"{each.of_best:.1%}"
    return (
        f"{workload:<22}{variant:<18}{each.programs:>9}{each.programs_per_s:>9.2f}{seconds:>10}{each.hit_rate:>9.1%}"
        f"{of_best:>9}{each.prefill_tokens:>9}{each.steps:>7}"
    )


def against_the_paper(workload: Workload, found: dict[str, Figures]) -> str:
    ours, theirs = found[WHOLE], found[BASELINE]
    assert ours.latency_s is not None and theirs.latency_s is not None
    paper = "" if workload.paper is None else f" (paper, against vLLM 0.2.2: {workload.paper:g})"
    return (
        f"{'':<22}{ours.programs_per_s / theirs.programs_per_s:.2f} times the programs per second{paper}, "
        f"{ours.latency_s / theirs.latency_s:.0%} of the latency, "
        f"{ours.prefill_tokens / theirs.prefill_tokens:.0%} of the prompt tokens computed"
    )


def hit_rates(found: dict[str, dict[str, Figures]], variant: str) -> dict[str, float]:
    """Prints and returns what a variant finds of what could be found: the mean over workloads, and the least."""
    shares = {name: share for name, each in found.items() if (share := each[variant].of_best) is not None}
    if not shares:
        return {}
    mean, least = statistics.mean(shares.values()), min(shares, key=shares.__getitem__)
    held = "holds" if mean >= MEAN_OF_BEST and shares[least] >= LEAST_OF_BEST else "MISSED"
    print(
        f"{variant}: {mean:.1%} of the best possible hit rate on average, {shares[least]:.1%} at least ({least}); "
        f"asked: {MEAN_OF_BEST:.0%} and {LEAST_OF_BEST:.0%}, {held}"
    )
    return {"mean_of_best": round(mean, 4), "least_of_best": round(shares[least], 4)}


def record_of(each: Figures) -> dict[str, Any]:
    rates = {"hit_rate": each.hit_rate, "best_hit_rate": each.best_hit_rate, "programs_per_s": each.programs_per_s}
    return asdict(each) | {name: round(value, 4) for name, value in rates.items()}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="ramet bench programs", description="The paper's workloads.")
    p.add_argument("--workload", choices=list(BY_NAME), action="append", help="default: all of them")
    p.add_argument("--variant", choices=list(VARIANTS), action="append", help="beside `all` (and `no cache`)")
    p.add_argument("--hit-rates", action="store_true", help="all programs, on a runner without a model")
    p.add_argument("--programs", type=positive, help="of each workload; default: the paper's number, or a few")
    p.add_argument("--num-threads", type=positive)
    p.add_argument("--output-file", type=Path, default=report.results_file("programs"), help=report.RESULTS_HELP)
    return p.parse_args(list(argv))


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    workloads = [workload for workload in WORKLOADS if workload.name in (options.workload or BY_NAME)]
    variants = list(dict.fromkeys([WHOLE, *([] if options.hit_rates else [BASELINE]), *(options.variant or [])]))
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        write_model(Path(folder))
        engines = Engines(Path(folder), options.hit_rates, options.num_threads)
        try:
            found = {workload.name: measure(engines, workload, variants, options) for workload in workloads}
        except BadOption as error:
            print(f"ramet bench programs: {error}", file=sys.stderr)
            return 1
        finally:
            engines.close()
    rates = {variant: hit_rates(found, variant) for variant in variants} if options.hit_rates else {}
    made = stamp.stamp(stamp.command_line("programs", argv))
    runner = {"runner": "scripted" if options.hit_rates else "model", "pool_tokens": POOL_TOKENS}
    lines = {name: {variant: record_of(each) for variant, each in of.items()} for name, of in found.items()}
    report.append_line(options.output_file, {"bench": "programs", **made, **runner, **rates, "workloads": lines})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
