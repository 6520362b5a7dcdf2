"""Views of what constraints cost and save: model steps, masks, and what compiling does to requests that run."""

from collections.abc import Sequence

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot, Row, Value
from ramet.bench.figures.view import Cells, View, slug

MODES = ("off", "ff", "retokenize")
PARTS = {"filling_us": "filling", "making_us": "making", "applying_us": "applying", "read_us": "a read of the logits"}


def jump_forward(records: Sequence[Record]) -> View:
    """Steps of a scripted model for each case, with jump-forward and without."""
    record = records[-1]
    cases = record["cases"]
    numbers: dict[str, float] = {"schemas": record["schemas"]}
    for name, case in cases.items():
        numbers |= {slug(name, figure): case[figure] for figure in ("canonical_tokens", "forced_tokens")}
        for mode in MODES:
            numbers |= {slug(name, "steps", mode): case["steps"][mode], slug(name, "ms", mode): case["ms"][mode]}
            numbers[slug(name, "faster", mode)] = case["ms"]["off"] / case["ms"][mode]
    rows = [
        (name, str(case["canonical_tokens"]), str(case["forced_tokens"]), *(_steps(case, mode) for mode in MODES))
        for name, case in cases.items()
    ]
    bars = tuple(Row(name, tuple(Value(case["steps"][mode]) for mode in MODES)) for name, case in cases.items())
    plot = Plot("Steps of the model for one output", "steps", MODES, bars, "{:.0f}")
    header = ("output", "tokens", "of them forced", *(f"`{mode}`: steps (ms)" for mode in MODES))
    return View(numbers, header, tuple(rows), plot, (record,))


def _steps(case: Record, mode: str) -> str:
    return f"{case['steps'][mode]} ({case['ms'][mode]:,.0f})"


def masks(records: Sequence[Record]) -> View:
    """Microseconds of a step, of each backend and case."""
    record = records[-1]
    rows, bars, numbers = list[Cells](), list[Row](), {name: record[name] for name in ("rows", "vocab_size")}
    for backend, cases in record["backends"].items():
        for case, figures in cases.items():
            title = f"{backend}, {case}"
            if "refused" in figures:
                rows.append((title, *("" for _ in PARTS), "refused"))
                continue
            medians = {part: figures[part]["median"] for part in PARTS}
            numbers |= {slug(title, part): median for part, median in medians.items()}
            numbers[slug(title, "reads")] = figures["applying_in_reads"]
            rows.append((title, *(f"{each:,.0f}" for each in medians.values()), f"{figures['applying_in_reads']:.2f}"))
            bars.append(Row(title, (Value(medians["filling_us"]),)))
    plot = Plot(
        f"Filling the masks of a step, {record['rows']} rows, vocabulary of {record['vocab_size']:,}",
        "microseconds, median", ("filling",), tuple(bars),
    )  # fmt: skip
    header = ("constraint", *(f"{part}, µs" for part in PARTS.values()), "applying, in reads")
    return View(numbers, header, tuple(rows), plot, (record,))


def compiles(records: Sequence[Record]) -> View:
    """Time between tokens of running requests in each window, and its growth."""
    record = records[-1]
    windows = record["windows"]
    busy = {name: each for name, each in windows.items() if each["ended"]}
    numbers = {slug(name, figure): each[figure]["ms"] for name, each in windows.items() for figure in ("median", "p99")}
    for name, each in busy.items():
        low, high = each["median"]["growth_interval"]
        numbers |= {slug(name, "growth"): each["median"]["growth"], slug(name, "low"): low, slug(name, "high"): high}
    numbers["highest"] = max(each["median"]["growth"] for each in busy.values())
    numbers["highest_high"] = max(each["median"]["growth_interval"][1] for each in busy.values())
    rows = tuple(
        (name, f"{each['median']['ms']:.2f}", _growth(each), f"{each['p99']['ms']:.2f}", _ended(each))
        for name, each in windows.items()
    )
    points = tuple(
        Row(name, (Value(each["median"]["growth"], *each["median"]["growth_interval"]),)) for name, each in busy.items()
    )
    axis = "growth of the median, with its interval"
    plot = Plot("Time between tokens while constraints compile", axis, ("growth",), points, "{:.1%}", points=True)
    header = ("window", "median, ms", "growth (interval)", "p99, ms", "requests that ended")
    return View(numbers, header, rows, plot, (record,))


def _growth(window: Record) -> str:
    low, high = window["median"]["growth_interval"]
    return f"{window['median']['growth']:+.1%} ({low:+.1%} to {high:+.1%})" if window["ended"] else ""


def _ended(window: Record) -> str:
    return ", ".join(f"{number} with {status}" for status, number in window["ended"].items())
