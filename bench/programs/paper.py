"""`ramet bench programs`: the workloads of section 6 of the SGLang paper in the language, on an LLM in process.

With a model of the 160M class each workload runs with everything on, and with neither prefix cache nor parallelism
inside a program: some programs, of the paper's lengths, for programs per second, and one alone for latency. Rounds are
taken in turn; a figure is that of the round with the median time. `--hit-rates` runs all programs of the paper's size
on a runner without a model and asks one question: how much of what an infinite cache finds does a pool of 15,000
tokens find, with 64 programs at once? `--variant` adds the paper's ablations to either.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
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

WHOLE, BASELINE, JUMPLESS = "all", "neither", "no jump-forward"
MEAN_OF_BEST, MIN_OF_BEST = 0.96, 0.90  # asked of the hit rates
HEAD = (
    f"{'workload':<22}{'variant':<18}{'programs':>9}{'prog/s':>9}{'latency s':>10}{'hit rate':>9}{'of best':>9}"
    f"{'prefill':>9}{'steps':>7}{'batch':>7}{'request s':>10}"
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
    engines: Engines, workload: Workload, variants: Sequence[str], options: argparse.Namespace
) -> dict[str, Figures]:
    """Every variant of one workload, each from an empty cache; prints a row for each."""
    num = options.programs or (workload.many if options.hit_rates else workload.few)
    if workload.compiles and not options.hit_rates:
        variants = [*variants, JUMPLESS]
    if workload.compiles:
        for name in variants:
            run(engines.of(VARIANTS[name]), workload, 1, VARIANTS[name], at_once=1)
    rounds: dict[str, list[Figures]] = {name: [] for name in variants}
    for _ in range(options.rounds):
        for name in variants:
            rounds[name].append(one_round(engines.of(VARIANTS[name]), workload, num, name, options.hit_rates))
    found = {name: sorted(each, key=lambda figures: figures.wall_s)[len(each) // 2] for name, each in rounds.items()}
    for name, figures in found.items():
        print(row(workload.name, name, figures), flush=True)
    if not options.hit_rates and {WHOLE, BASELINE} <= found.keys():
        print(against_the_paper(workload, found))
    return found


def one_round(llm: RecordingLLM, workload: Workload, num: int, variant: str, hit_rates: bool) -> Figures:
    switches = VARIANTS[variant]
    figures = run(llm, workload, num, switches, at_once=workload.at_once)
    if hit_rates:
        return figures
    is_alone = num == 1 or workload.at_once == 1
    return replace(figures, latency_s=figures.wall_s / num if is_alone else latency(llm, workload, switches))


def row(workload: str, variant: str, each: Figures) -> str:
    seconds = "" if each.latency_s is None else f"{each.latency_s:.2f}"
    of_best = "-" if each.of_best is None else f"{each.of_best:.1%}"
    return (
        f"{workload:<22}{variant:<18}{each.programs:>9}{each.programs_per_s:>9.2f}{seconds:>10}{each.hit_rate:>9.1%}"
        f"{of_best:>9}{each.prefill_tokens:>9}{each.steps:>7}{each.batch:>7.1f}{each.request_s:>10.2f}"
    )


def against_the_paper(workload: Workload, found: dict[str, Figures]) -> str:
    ours, theirs = found[WHOLE], found[BASELINE]
    steps = f", {found[JUMPLESS].steps / ours.steps:.2f} times fewer steps by jumps" if JUMPLESS in found else ""
    assert ours.latency_s is not None and theirs.latency_s is not None
    paper = "" if workload.paper is None else f" (paper, against vLLM 0.2.2: {workload.paper:g})"
    return (
        f"{'':<22}{ours.programs_per_s / theirs.programs_per_s:.2f} times the programs per second{paper}, "
        f"{ours.latency_s / theirs.latency_s:.0%} of the latency, "
        f"{theirs.prefill_tokens / ours.prefill_tokens:.2f} times fewer prompt tokens computed{steps}"
    )


def hit_rates(found: dict[str, dict[str, Figures]], variant: str) -> dict[str, float]:
    """Prints and returns what a variant finds of what could be found: the mean over workloads, and the least."""
    shares = {name: share for name, each in found.items() if (share := each[variant].of_best) is not None}
    if not shares:
        return {}
    mean, least = statistics.mean(shares.values()), min(shares, key=shares.__getitem__)
    held = "holds" if mean >= MEAN_OF_BEST and shares[least] >= MIN_OF_BEST else "MISSED"
    print(
        f"{variant}: {mean:.1%} of the best possible hit rate on average, {shares[least]:.1%} at least ({least}); "
        f"asked: {MEAN_OF_BEST:.0%} and {MIN_OF_BEST:.0%}, {held}"
    )
    return {"mean_of_best": round(mean, 4), "least_of_best": round(shares[least], 4)}


def record_of(each: Figures) -> dict[str, Any]:
    rates = {"hit_rate": each.hit_rate, "best_hit_rate": each.best_hit_rate, "programs_per_s": each.programs_per_s}
    return asdict(each) | {name: round(value, 4) for name, value in (rates | {"batch": each.batch}).items()}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="ramet bench programs", description="The paper's workloads.")
    p.add_argument("--workload", choices=list(BY_NAME), action="append", help="default: all of them")
    p.add_argument("--variant", choices=list(VARIANTS), action="append", help="beside `all` (and `no cache`)")
    p.add_argument("--hit-rates", action="store_true", help="all programs, on a runner without a model")
    p.add_argument("--programs", type=positive, help="of each workload; default: the paper's number, or a few")
    p.add_argument("--rounds", type=positive, default=1, help="of each variant, in turn")
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
    runner = {
        "runner": "scripted" if options.hit_rates else "model",
        "pool_tokens": POOL_TOKENS,
        "rounds": options.rounds,
    }
    lines = {name: {variant: record_of(each) for variant, each in of.items()} for name, of in found.items()}
    report.append_line(options.output_file, {"bench": "programs", **made, **runner, **rates, "workloads": lines})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
