"""Views of ramet beside other engines on the same loads, through HTTP, beside a busy process, and from its start."""

import statistics
from collections.abc import Iterator, Sequence

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot, Row, Value
from ramet.bench.figures.view import View, slug


def is_kind(kind: str, record: Record) -> bool:
    return bool(record.get("kind", "engines") == kind)


def engines(records: Sequence[Record]) -> View:
    """The newest figures of each model, kind of weights and load."""
    sources = _newest(records)
    rows, bars = [], []
    numbers: dict[str, float] = {}
    for record in sources:
        for what, load in _loads(record):
            if load["ratio"] is not None:
                ratio = load.get("ratios", {}).get(load["best"], [load["ratio"]])
                ends = {"ratio": ratio[0], "low": min(ratio), "high": max(ratio)}
                numbers |= {slug(what, name): value for name, value in ends.items()}
                bars.append(Row(f"{what}: {load['best']}", (Value(*ratio),)))
            for engine, seconds in load["seconds"].items():
                middle, share = statistics.median(seconds), load["limit_s"] / statistics.median(seconds)
                numbers[slug(what, engine, "share")] = share
                rates = load["requests"] * load["output"] / middle, load["requests"] / middle
                version = record["peers"][engine]["version"]
                found = _spread(load.get("ratios", {}).get(engine))
                cells = f"{rates[0]:,.1f}", f"{rates[1]:,.2f}", f"{share:.0%}", found
                rows.append((what, f"{engine} {version}", *cells))
        rows += [(f"{record['model']}, {record['weights']}", f"not measured: {why}", "", "", "", "")
                 for why in record["missing"]]  # fmt: skip
    header = ("load", "engine", "output tokens/s", "requests/s", "of the limit", "its time to ramet's (interval)")
    axis = "time of the best other engine as a multiple of ramet's, median and its interval"
    plot = Plot("ramet beside the best other engine", axis, ("",), tuple(bars), "{:.2f}", (1.0, "ramet"))
    return View(numbers, header, tuple(rows), plot, sources)


def http(records: Sequence[Record]) -> View:
    """ramet through HTTP beside ramet in process."""
    kept: dict[tuple[str, str], tuple[float, float, float]] = {}
    client: dict[tuple[str, str], float] = {}
    sources = _newest(records)
    for record in sources:
        for what, load in _loads(record):
            for path, ratio in load["ratios"].items():
                middle, low, high = ratio
                kept[what, path] = 1 / middle, 1 / high, 1 / low
                client[what, path] = load["client_cores"][path]
    rows = tuple(
        (what, path.removeprefix("ramet "), _spread(value), f"{client[what, path]:.1%}")
        for (what, path), value in kept.items()
    )
    header = ("load", "endpoint", "of the figure in process (interval)", "client, of one core")
    return View({"least": min(each[0] for each in kept.values())}, header, rows, _kept("Through HTTP", kept), sources)


def busy(records: Sequence[Record]) -> View:
    """Each engine beside a process that keeps a core busy, as a share of its figure without."""
    sources = _newest(records)
    kept = {
        (what, load["engine"]): (load["kept"][0], load["kept"][1], load["kept"][2])
        for record in sources
        for what, load in _loads(record)
    }
    rows = tuple((what, engine, _spread(value)) for (what, engine), value in kept.items())
    ours = [value[0] for (_, engine), value in kept.items() if engine == "ramet"]
    header = ("load", "engine", "of its figure alone (interval)")
    return View({"least": min(ours)}, header, rows, _kept("Beside a busy process", kept), sources)


def starts(records: Sequence[Record]) -> View:
    """Seconds to the first token, and memory."""
    sources = _newest(records)
    rows, bars = [], []
    numbers: dict[str, float] = {}
    for record in sources:
        what = _what(record)
        for engine, found in record["peers"].items():
            middle = statistics.median(found["start_s"])
            sizes = found["peak_bytes"] / 1e6, (found["peak_bytes"] - found["kv_bytes"]) / 1e6
            numbers |= {slug(what, engine, "s"): middle, slug(what, engine, "mb"): sizes[1]}
            rows.append((what, f"{engine} {found['version']}", f"{middle:.2f}", *(f"{size:,.0f}" for size in sizes)))
            bars.append(Row(f"{what}: {engine}", (Value(middle, min(found["start_s"]), max(found["start_s"])),)))
    header = ("model", "engine", "to the first token, s", "peak memory, MB", "without keys and values, MB")
    plot = Plot("From the command to the first token", "seconds, median and range", ("",), tuple(bars), "{:.1f} s")
    return View(numbers, header, tuple(rows), plot, sources)


def _newest(records: Sequence[Record]) -> tuple[Record, ...]:
    """Of each model and kind of weights, with the loads of which no newer line has figures."""

    def key(record: Record) -> tuple[str, str]:
        return record["model"], record["weights"]

    newest = {(*key(record), name): record for record in records for name in _names(record)}
    found = []
    for record in records:
        names = {name for name in _names(record) if newest[*key(record), name] is record}
        if names:
            kept = [load for load in record.get("loads", ()) if load["load"] in names]
            found.append(record | ({"loads": kept} if "loads" in record else {}))
    return tuple(sorted(found, key=key))


def _names(record: Record) -> set[str]:
    """Of its loads; of a line without loads one name."""
    return {load["load"] for load in record["loads"]} if "loads" in record else {""}


def _what(record: Record) -> str:
    return f"{record['model']}{'' if record['weights'] == 'two-byte' else ' ' + record['weights']}"


def _loads(record: Record) -> Iterator[tuple[str, Record]]:
    """(what is measured, the load)"""
    weights = "" if record["weights"] == "two-byte" else f", {record['weights']}"
    for load in record["loads"]:
        yield f"{record['model']} {load['load']}{weights}", load


def _spread(values: Sequence[float] | None) -> str:
    return "" if values is None else f"{values[0]:.2f} ({values[1]:.2f} to {values[2]:.2f})"


def _kept(title: str, kept: dict[tuple[str, str], tuple[float, float, float]]) -> Plot:
    bars = tuple(
        Row(f"{what}: {name}", (Value(*(100 * each for each in value)),)) for (what, name), value in kept.items()
    )
    return Plot(title, "per cent of the other figure, median and its interval", ("",), bars, "{:.0f} %")
