"""Views of a whole server: its start, and what its options change."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import replace

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot
from ramet.bench.figures.view import View, code, simple_rows, slug

SHORTEST_PHASE_S = 0.02  # that a plot shows
TUNED = {
    "tokens_per_s": "tokens/s", "ttft_ms": "first token, ms", "itl_ms": "next token, ms",
    "p99_itl_ms": "99% of next tokens, ms", "memory_mib": "memory, MiB",
}  # fmt: skip


def startup(records: Sequence[Record]) -> View:
    """Seconds of each phase of the last start, the times of all starts that mapped their weights, and the memory."""
    record = records[-1]
    ready, answered = record["ready_s"], record["first_answer_s"]
    parsed = {f"{role}: {name}": s for role, text in record["phases"].items() for name, s in phase_seconds(text)}
    longest = sorted(((name, s) for name, s in parsed.items() if s >= SHORTEST_PHASE_S), key=lambda item: -item[1])
    numbers = {slug(name): s for name, s in parsed.items()}
    numbers |= {"starts": len(ready), "ready": statistics.median(ready), "first": ready[0], "last": ready[-1]}
    numbers |= {"answered": statistics.median(answered), "slowest_later": max(ready[1:] or ready)}
    numbers["longest_phase"] = max(parsed.values())
    numbers |= {"packing": record["first_start_s"], "memory_mb": record["memory"]["beyond_pool_bytes"] / 1e6}
    rows = [
        (name, f"{statistics.median(times):.2f}", ", ".join(f"{s:.2f}" for s in times))
        for name, times in (("ready", ready), ("first answer", answered))
    ]
    plot = Plot(
        "Phases of the last start; processes start side by side", "seconds", ("time",),
        simple_rows(dict(longest)), "{:.2f}",
    )  # fmt: skip
    return View(numbers, ("until", "median, s", "each start, s"), tuple(rows), plot, (record,))


def phase_seconds(text: str) -> list[tuple[str, float]]:
    """Of "imports 0.02, load tokenizer 0.01, whole 0.03", without the sum at its end."""
    found = [(name, float(seconds)) for name, seconds in re.findall(r"([^,]+?) (\d+\.\d+)(?:, |$)", text)]
    return [(name, seconds) for name, seconds in found if name != "whole"]


def tuning(records: Sequence[Record]) -> View:
    """Figures of each option, with the ratio to a server without any."""
    record = records[-1]
    variants = record["variants"]
    ratios = {name: each["ratio"] for name, each in variants.items()}
    numbers = {slug(name, figure): each[figure] for name, each in ratios.items() for figure in TUNED}
    rows = tuple(
        (code(name), *(f"{each[figure]:,.1f} ({each['ratio'][figure]:.2f})" for figure in TUNED))
        for name, each in variants.items()
    )
    bars = simple_rows({name: each["tokens_per_s"] for name, each in ratios.items() if name.startswith("--")})
    plot = Plot(
        "Throughput with one option changed", "output tokens per second, times those of the defaults", ("ratio",),
        bars, "{:.2f}", mark=(1.0, "the defaults"),
    )  # fmt: skip
    return View(numbers, ("options", *TUNED.values()), rows, plot, (record,))


def options(records: Sequence[Record]) -> View:
    """The same lines, with the ratios alone; docs/tuning.md has the whole table."""
    whole = tuning(records)
    shown = ("tokens_per_s", "ttft_ms", "itl_ms")
    rows = tuple(
        (code(name), *(f"{each['ratio'][figure]:.2f}" for figure in shown))
        for name, each in records[-1]["variants"].items()
    )
    return replace(whole, header=("options", "tokens/s", "time to the first token", "time between tokens"), rows=rows)
