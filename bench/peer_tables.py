"""What `ramet bench peers` prints: a table for each load."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

Record = dict[str, Any]
Rows = list[tuple[str, ...]]


def show(kind: str, record: Record) -> None:
    made: Callable[[Record], Iterator[tuple[str, Rows]]] = {
        "engines": _engines, "http": _engines, "busy": _busy, "starts": _starts,
    }[kind]  # fmt: skip
    for title, rows in made(record):
        print(f"\n{record['model']}, {record['weights']} weights, {title}")
        print("\n".join(lines(rows)), flush=True)
    for why in record["missing"]:
        print(f"not measured: {why}", flush=True)


def lines(rows: Rows) -> Iterator[str]:
    """Columns side by side, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *rest in rows:
        yield "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:]))])


def _engines(record: Record) -> Iterator[tuple[str, Rows]]:
    for load in record["loads"]:
        rows: Rows = [("engine", "version", "s", "output tok/s", "req/s", "of the limit", "its time to ramet's")]
        for name, seconds in load["seconds"].items():
            middle = statistics.median(seconds)
            rates = f"{load['requests'] * load['output'] / middle:.1f}", f"{load['requests'] / middle:.2f}"
            ratio = spread(load["ratios"][name]) if name in load["ratios"] else ""
            share = f"{load['limit_s'] / middle:.0%}"
            rows.append((name, record["peers"][name]["version"], f"{middle:.3f}", *rates, share, ratio))
        yield _named(load), rows
        for name, cores in load.get("client_cores", {}).items():
            print(f"{name}: the client took {cores:.3f} of a core")


def _busy(record: Record) -> Iterator[tuple[str, Rows]]:
    rows: Rows = [("engine", "load", "quiet, s", "beside a busy process, s", "keeps")]
    for load in record["loads"]:
        times = (f"{statistics.median(load[key]):.3f}" for key in ("quiet_s", "busy_s"))
        rows.append((load["engine"], load["load"], *times, spread(load["kept"])))
    yield "beside a busy process", rows


def _starts(record: Record) -> Iterator[tuple[str, Rows]]:
    rows: Rows = [("engine", "version", "to the first token, s", "peak memory, MB", "without keys and values, MB")]
    for name, found in record["peers"].items():
        first = f"{statistics.median(found['start_s']):.2f}" if found["start_s"] else ""
        sizes = (f"{size / 1e6:,.0f}" for size in (found["peak_bytes"], found["peak_bytes"] - found["kv_bytes"]))
        rows.append((name, found["version"], first, *sizes))
    yield "start and memory", rows


def _named(load: Record) -> str:
    prompt = f"{load['shared']} shared + {load['own']}" if load["shared"] else str(load["own"])
    return f"{load['load']}: {load['requests']} requests, {prompt} in, {load['output']} out"


def spread(values: list[float]) -> str:
    middle, low, high = values
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
