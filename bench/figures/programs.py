"""Views of the workloads of section 6 of the SGLang paper: speed against the paper's, sharing, hit rates, ablations."""

from collections.abc import Mapping, Sequence
from typing import Any

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot, Row, Value
from ramet.bench.figures.view import View, slug
from ramet.bench.programs.catalogue import BY_NAME
from ramet.bench.programs.overhead import PAPER, TARGET
from ramet.bench.programs.paper import BASELINE, JUMPLESS, WHOLE

Figures = Mapping[str, Any]
SWEEPS = ("shared-", "articles-")  # Figure 12
MAX_BARS = 4  # of a workload, one for each variant


def is_sweep(name: str) -> bool:
    return name.startswith(SWEEPS)


def is_speed(record: Record) -> bool:
    """Workloads on a model, with everything and with nothing."""
    return record["runner"] == "model" and _has(record, (WHOLE, BASELINE)) and not _variants(record)


def newest_of_each_workload(
    records: Sequence[Record], *, sweeps: bool
) -> tuple[dict[str, Figures], tuple[Record, ...]]:
    """Each from one line, whose variants were measured in turn; the lines that are used, the oldest first."""
    found = {
        name: (record, each)
        for record in records
        for name, each in record["workloads"].items()
        if is_sweep(name) == sweeps
    }
    used = tuple(record for record in records if any(each is record for each, _ in found.values()))
    return {name: found[name][1] for name in BY_NAME if name in found}, used


def is_hit_rates(record: Record) -> bool:
    return record["runner"] == "scripted" and _has_all_workloads(record)


def is_policies(record: Record) -> bool:
    """Figure 10: of variants beside those that every line has, without a model."""
    return record["runner"] == "scripted" and bool(_variants(record))


def is_parts(record: Record) -> bool:
    """Figure 11."""
    return record["runner"] == "model" and bool(_variants(record))


def speed(records: Sequence[Record]) -> View:
    """Programs per second with cache and parallelism over that without, beside the paper's ratio."""
    workloads, used = newest_of_each_workload(records, sweeps=False)
    rows, bars, numbers = [], [], dict[str, float]()
    for name, each in workloads.items():
        ours, bare, paper = each[WHOLE], each[BASELINE], BY_NAME[name]
        ratio = ours["programs_per_s"] / bare["programs_per_s"]
        tokens = bare["prefill_tokens"] / ours["prefill_tokens"]
        latency = ours["latency_s"] / bare["latency_s"]
        loaded = ours["request_s"] / bare["request_s"]
        numbers |= {slug(name, "ratio"): ratio, slug(name, "tokens"): tokens}
        numbers |= {slug(name, "latency"): latency, slug(name, "loaded"): loaded}
        numbers |= {slug(name, "alone"): ours["latency_s"], slug(name, "steps"): ours["steps"]}
        steps = f"{ours['steps']:,} / {bare['steps']:,}"
        if JUMPLESS in each:
            numbers[slug(name, "jumps")] = each[JUMPLESS]["steps"] / ours["steps"]
            steps += f" / {each[JUMPLESS]['steps']:,}"
        rows.append(
            (
                f"{name} ({ours['programs']})",
                f"{ratio:.2f}",
                "" if paper.paper is None else f"{paper.paper:g}",
                f"{latency:.0%}",
                f"{loaded:.0%}",
                "" if paper.paper_latency is None else f"{paper.paper_latency:.0%}",
                f"{ours['wall_s']:.1f} / {bare['wall_s']:.1f}",
                f"{ours['prefill_tokens']:,} / {bare['prefill_tokens']:,}",
                f"{tokens:.2f}",
                steps,
                f"{ours['hit_rate']:.0%}",
            )
        )
        bars.append(Row(name, (Value(ratio), None if paper.paper is None else Value(paper.paper))))
    header = (
        "workload (programs)", "programs/s, ratio", "the paper's", "latency of a program", "of a request",
        "the paper's", "seconds", "prompt tokens computed", "ratio", "steps", "hit rate",
    )  # fmt: skip
    title = "Programs per second with cache and parallelism, over without"
    plot = Plot(title, "ratio", ("ramet", "the paper"), tuple(bars), "{:.1f}", (1.0, "without"))
    return View(numbers, header, tuple(rows), plot, used)


def sharing(records: Sequence[Record]) -> View:
    """Figure 12: what is shared grows, and what is not."""
    workloads, used = newest_of_each_workload(records, sweeps=True)
    rows, bars, numbers = [], [], dict[str, float]()
    for name, each in workloads.items():
        ours, bare = each[WHOLE], each[BASELINE]
        ratio = ours["programs_per_s"] / bare["programs_per_s"]
        numbers |= {slug(name, "ratio"): ratio, slug(name, "hits"): ours["hit_rate"]}
        pairs = [(ours[figure], bare[figure]) for figure in ("programs_per_s", "batch", "request_s")]
        cells = (f"{with_it:.2f} / {without:.2f}" for with_it, without in pairs)
        rows.append((f"{name} ({ours['programs']})", f"{ours['hit_rate']:.0%}", f"{ratio:.2f}", *cells))
        bars.append(Row(name, (Value(ratio), Value(ours["hit_rate"]))))
    header = ("requests", "hit rate", "requests/s, ratio", "requests/s", "batch", "latency of a request, s")
    plot = Plot("What sharing gives", "ratio", ("requests per second", "hit rate"), tuple(bars), "{:.2f}")
    return View(numbers, header, tuple(rows), plot, used)


def has_forward(record: Record) -> bool:
    """Of a bench of the tree's cost: beside a model."""
    return record["runner"] == "model"


def tree_cost(records: Sequence[Record]) -> View:
    """Section 6.4.4: what keeping the tree takes, as a share of the forward passes."""
    record = records[-1]
    loads = {name: (each, each["median"]["tree"], each["median"]["off"]) for name, each in record["loads"].items()}
    rows = tuple(
        (
            f"{name} ({each['requests']})",
            f"{each['tree_s'] * 1000:.2f}",
            f"{each['tree_s'] / tree['steps'] * 1e6:.1f}",
            f"{each['share_of_forward']:.3%}",
            f"{PAPER[name]:.1%}",
            f"{tree['wall']:.1f} / {off['wall']:.1f}",
        )
        for name, (each, tree, off) in loads.items()
    )
    shares = {name: each["share_of_forward"] for name, (each, _, _) in loads.items()}
    numbers = {"most": max(shares.values()), "target": TARGET}
    bars = tuple(Row(name, (Value(share), Value(PAPER[name]))) for name, share in shares.items())
    axis = "share of the time of the forward passes"
    plot = Plot("What keeping the tree costs", axis, ("ramet", "the paper"), bars, "{:.3%}", (TARGET, "asked"))
    header = (
        "requests", "tree, ms", "a step, µs", "share of the forward passes", "the paper's", "seconds with it / without",
    )  # fmt: skip
    return View(numbers, header, rows, plot, (record,))


def hit_rates(records: Sequence[Record]) -> View:
    """What a small pool finds of what an infinite cache would find."""
    record = records[-1]
    found = {name: each[WHOLE] for name, each in record["workloads"].items() if each[WHOLE]["best_cached_tokens"]}
    shares = {name: each["cached_tokens"] / each["best_cached_tokens"] for name, each in found.items()}
    rows = tuple(
        (
            f"{name} ({each['programs']:,})",
            f"{each['hit_rate']:.1%}",
            f"{each['best_hit_rate']:.1%}",
            f"{shares[name]:.1%}",
            f"{each['prefill_tokens']:,} of {each['prompt_tokens']:,}",
            f"{each['prompt_tokens'] / each['prefill_tokens']:.2f}",
        )
        for name, each in found.items()
    )
    numbers = {"mean": sum(shares.values()) / len(shares), "least": min(shares.values())}
    bars = tuple(Row(name, (Value(share),)) for name, share in shares.items())
    plot = Plot("Hit rate of a pool of 15,000 tokens", "share of the best possible", ("found",), bars, "{:.1%}")
    header = ("workload (programs)", "hit rate", "best possible", "share of it", "prompt tokens computed", "ratio")
    return View(numbers, header, rows, plot, (record,))


def ablations(records: Sequence[Record]) -> View:
    """Figures 10 and 11: each variant's programs per second over those with everything, its hit rate beside it.

    They are of the newest line that has both the workload and the variant, and are divided by the same line's.
    """
    newest = {
        (name, variant): record for record in records for name in record["workloads"] for variant in _variants(record)
    }
    variants = list(dict.fromkeys(variant for _, variant in newest))
    used = tuple(record for record in records if any(each is record for each in newest.values()))
    whole = {name: each[WHOLE] for record in used for name, each in record["workloads"].items()}
    numbers: dict[str, float] = {}
    rows, bars = [], []
    for name in whole:
        cells, values = list[str](), list[Value | None]()
        for variant in variants:
            if (name, variant) not in newest:
                cells.append("")
                values.append(None)
                continue
            each = newest[name, variant]["workloads"][name]
            ratio = each[variant]["programs_per_s"] / each[WHOLE]["programs_per_s"]
            numbers[slug(name, variant)] = ratio
            cells.append(f"{ratio:.2f} ({each[variant]['hit_rate']:.0%})")
            values.append(Value(ratio))
        rows.append((name, f"{whole[name]['hit_rate']:.0%}", *cells))
        bars.append(Row(name, tuple(values[:MAX_BARS])))
    header = ("workload", "hit rate with everything", *(f"{variant}: ratio (hit rate)" for variant in variants))
    axis = "programs per second, as a share of those with everything"
    shown = tuple(variants[:MAX_BARS])
    plot = Plot("What each part gives", axis, shown, tuple(bars), "{:.2f}", (1.0, "everything"))
    return View(numbers, header, tuple(rows), plot, used)


def _has_all_workloads(record: Record) -> bool:
    """All that there were when it was made."""
    return "--workload" not in record["command"]


def _has(record: Record, variants: Sequence[str]) -> bool:
    return all(variant in each for each in record["workloads"].values() for variant in variants)


def _variants(record: Record) -> list[str]:
    """Those that all workloads have beside everything, nothing and no jumps."""
    first: Figures = next(iter(record["workloads"].values()), {})
    others = [variant for variant in first if variant not in (WHOLE, BASELINE, JUMPLESS)]
    return others if _has(record, others) else []
