"""View of ramet beside other engines on the same loads, and of how much of the machine's limit each reaches."""

import statistics
from collections.abc import Iterator, Sequence

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot, Row, Value
from ramet.bench.figures.view import View, slug


def engines(records: Sequence[Record]) -> View:
    """The newest line of each model, kind of weights and neighbour."""
    newest = {(record["model"], record["weights"], record["busy"]): record for record in records}
    sources = tuple(newest[key] for key in sorted(newest))
    rows, bars = [], []
    numbers: dict[str, float] = {}
    for record in sources:
        for what, load in _loads(record):
            if load["ratio"] is not None:
                numbers[slug(what, "ratio")] = load["ratio"]
            for engine, seconds in load["seconds"].items():
                middle, share = statistics.median(seconds), load["limit_s"] / statistics.median(seconds)
                numbers[slug(what, engine, "share")] = share
                rates = load["requests"] * load["output"] / middle, load["requests"] / middle
                version = record["peers"][engine]["version"]
                rows.append((what, f"{engine} {version}", f"{rates[0]:,.1f}", f"{rates[1]:,.2f}", f"{share:.0%}"))
                shares = [100 * load["limit_s"] / each for each in seconds]
                bars.append(Row(f"{what}: {engine}", (Value(100 * share, min(shares), max(shares)),)))
    header = ("load", "engine", "output tokens/s", "requests/s", "of the limit")
    axis = "per cent of what the machine can do, median and range of the rounds"
    return View(
        numbers, header, tuple(rows), Plot("Engines on one machine", axis, ("",), tuple(bars), "{:.0f} %"), sources
    )


def _loads(record: Record) -> Iterator[tuple[str, Record]]:
    """(what is measured, the load)"""
    busy = ", beside a busy process" if record["busy"] else ""
    weights = "" if record["weights"] == "two-byte" else f", {record['weights']}"
    for load in record["loads"]:
        yield f"{record['model']} {load['load']}{weights}{busy}", load
