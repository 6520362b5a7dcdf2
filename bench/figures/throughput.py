"""Views of tokens per second in one process: against transformers, by batch and prompt."""

import statistics
from collections.abc import Sequence
from typing import Any

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot, Row, Value
from ramet.bench.figures.view import View, slug
from ramet.bench.loads import LOADS
from ramet.bench.offline import doublings

RATE_AXIS = "output tokens per second, median and range of the rounds"


def offline(records: Sequence[Record]) -> View:
    """ramet and transformers on the same loads."""
    record = records[-1]
    sides = tuple(record["loads"][0]["seconds"])
    numbers: dict[str, float] = {}
    rows, bars = [], []
    for load in record["loads"]:
        name, rates = load["load"], {side: _rates(load, side) for side in sides}
        numbers |= {slug(name, side): rates[side].middle for side in sides} | {slug(name, "ratio"): load["ratio"]}
        rows.append((name, *(f"{rates[side].middle:,.1f}" for side in sides), _ratio(load)))
        bars.append(Row(name, tuple(rates[side] for side in sides)))
    header = ("load", *(f"{side}, tokens/s" for side in sides), "ratio (range of the rounds)")
    return View(
        numbers,
        header,
        tuple(rows),
        Plot("Throughput in one process", RATE_AXIS, sides, tuple(bars), "{:,.1f}"),
        (record,),
    )


def _ratio(load: dict[str, Any]) -> str:
    ratios = [b / a for a, b in zip(load["seconds"]["ramet"], load["seconds"]["transformers"])]
    return f"{load['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _rates(load: dict[str, Any], side: str) -> Value:
    """Output tokens/s of the median round, the slowest and the fastest."""
    seconds, rate = load["seconds"][side], load[side]["output_tokens_per_s"]
    middle = statistics.median(seconds)
    return Value(rate, rate * middle / max(seconds), rate * middle / min(seconds))


def growth(records: Sequence[Record]) -> View:
    """Requests of the same lengths, from one to many in a batch."""
    record = _grown(records)
    loads = [load for load in map(_with_lengths, _loads(record)) if not load["shared"] and load["output"] > 1]
    loads = [load for load in loads if not load.get("cached")]
    loads.sort(key=lambda load: load["requests"])
    sides = tuple(loads[0]["seconds"])
    rates = [{side: _rates(load, side) for side in sides} for load in loads]
    counts = [load["requests"] for load in loads]
    each = [rate["ramet"].middle / num for num, rate in zip(counts, rates)]
    numbers = {"most": counts[-1], "each_alone": each[0], "each_together": each[-1]}
    numbers |= {slug(side, "gain"): rates[-1][side].middle / rates[0][side].middle for side in sides}
    numbers |= {f"dearest_{what}": cost for what, (cost, _) in doublings(loads).items()}
    rows = tuple(
        (str(num), *(f"{rate[side].middle:,.1f}" for side in sides), f"{own:,.1f}")
        for num, rate, own in zip(counts, rates, each)
    )
    bars = tuple(Row(f"{num} request{'s' * (num > 1)}", tuple(rate.values())) for num, rate in zip(counts, rates))
    header = ("requests", *(f"{side}, tokens/s" for side in sides), "ramet, tokens/s of each request")
    plot = Plot("Throughput of one batch, by requests in it", RATE_AXIS, sides, bars, "{:,.1f}")
    return View(numbers, header, rows, plot, (record,))


def prompts(records: Sequence[Record]) -> View:
    """One prompt at a time, from short to long, until its first token."""
    record = _grown(records)
    loads = sorted((load for load in record["growth"] if load["output"] == 1), key=lambda load: load["own"])
    lengths = [load["own"] for load in loads]
    times = [_milliseconds(load["seconds"]["ramet"]) for load in loads]
    speeds = [length / time.middle * 1000 for length, time in zip(lengths, times)]
    numbers = {"shortest": lengths[0], "shortest_ms": times[0].middle, "shortest_speed": speeds[0]}
    numbers |= {"longest": lengths[-1], "longest_ms": times[-1].middle, "longest_speed": speeds[-1]}
    rows = tuple(
        (f"{length:,}", f"{time.middle:,.0f}", f"{speed:,.0f}") for length, time, speed in zip(lengths, times, speeds)
    )
    bars = tuple(Row(f"{length:,} tokens", (time,)) for length, time in zip(lengths, times))
    axis = "milliseconds to the first token, median and range of the rounds"
    header = ("prompt, tokens", "to the first token, ms", "prompt tokens/s")
    return View(numbers, header, rows, Plot("Time of one prompt, by its length", axis, ("ramet",), bars), (record,))


def context_growth(records: Sequence[Record]) -> View:
    """One request after prompts in the cache, from short to long."""
    record = records[-1]
    loads = sorted((load for load in record["growth"] if load.get("cached")), key=lambda load: load["own"])
    rates = [_rates(load, "ramet") for load in loads]
    numbers = {"longest": loads[-1]["own"], "shortest": loads[0]["own"]}
    numbers |= {"longest_rate": rates[-1].middle, "shortest_rate": rates[0].middle}
    numbers |= {f"dearest_{what}": cost for what, (cost, _) in doublings(loads).items()}
    rows = tuple((f"{load['own']:,}", f"{rate.middle:,.1f}") for load, rate in zip(loads, rates))
    bars = tuple(Row(f"{load['own']:,} tokens", (rate,)) for load, rate in zip(loads, rates))
    header = ("in the cache, tokens", "output tokens/s")
    plot = Plot("Throughput of one request, by its context", RATE_AXIS, ("ramet",), bars, "{:,.1f}")
    return View(numbers, header, rows, plot, (record,))


def _grown(records: Sequence[Record]) -> Record:
    """The newest line that was made with --grow, or the newest of all."""
    return next((record for record in reversed(records) if "growth" in record), records[-1])


def _loads(record: Record) -> list[dict[str, Any]]:
    loads: list[dict[str, Any]] = record["growth"] if "growth" in record else record["loads"]
    return loads


def _with_lengths(load: dict[str, Any]) -> dict[str, Any]:
    """Early lines name a load and do not say its lengths."""
    known = {each.name: {"requests": each.requests, "shared": each.shared, "output": each.output} for each in LOADS}
    return known.get(load["load"], {}) | load


def _milliseconds(seconds: list[float]) -> Value:
    return Value(*(each * 1000 for each in (statistics.median(seconds), min(seconds), max(seconds))))
