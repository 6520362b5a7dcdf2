"""Views of what a token, a step or a parameter costs beside the model."""

from collections.abc import Sequence
from typing import Any

from ramet.bench.figures.records import Record, newest_of_each_variant, variant
from ramet.bench.figures.svg import MAX_SERIES, Plot, Row, Value
from ramet.bench.figures.view import Cells, View, simple_rows, slug


def phases(records: Sequence[Record]) -> View:
    """Shares of a step."""
    record = records[-1]
    shares = record["phase_shares"]
    beside = {name: share for name, share in shares.items() if name != "forward"}
    plot = Plot(
        f"A step outside the forward pass, which takes {shares['forward']:.1%}", "share of a step",
        ("share",), simple_rows(beside), "{:.2%}",
    )  # fmt: skip
    rows = tuple((name, f"{share:.2%}") for name, share in shares.items())
    numbers = {**shares, "beside_forward": record["beside_forward"]}
    return View(numbers, ("phase", "share of a step"), rows, plot, (record,))


def pipeline(records: Sequence[Record]) -> View:
    """CPU time of each process per token, of each kind of stream that was measured."""
    newest = newest_of_each_variant(records)[-MAX_SERIES:]
    plain = next((record for record in newest if not variant(record)), newest[-1])
    costs = plain["cpu_us_per_token"]
    whole = sum(costs.values())
    numbers = {**costs, "whole": whole, "tokens_per_s": plain["tokens_per_s"], "streams": plain["streams"]}
    numbers |= {f"{role}_share": cost / whole for role, cost in costs.items()}
    roles = sorted({role for record in newest for role in record["cpu_us_per_token"]}, key=lambda r: -costs.get(r, 0.0))
    names = tuple(variant(record) or "completions" for record in newest)
    rows = [(role, *(_cost(record, role) for record in newest)) for role in roles]
    rows.append(("together", *(f"{sum(record['cpu_us_per_token'].values()):.2f}" for record in newest)))
    rows.append(("tokens/s (slowest to fastest round)", *(_rounds(record) for record in newest)))
    bars = tuple(Row(role, tuple(_cost_value(record, role) for record in newest)) for role in roles)
    header = (
        "process",
        *(f"{name}: µs per token (share)" if len(names) > 1 else "µs per token (share)" for name in names),
    )
    plot = Plot("CPU time of one token, without a model", "microseconds of CPU time per token", names, bars, "{:.2f}")
    return View(numbers, header, tuple(rows), plot, tuple(newest))


def _cost(record: Record, role: str) -> str:
    costs = record["cpu_us_per_token"]
    return f"{costs[role]:.2f} ({costs[role] / sum(costs.values()):.0%})" if role in costs else ""


def _cost_value(record: Record, role: str) -> Value | None:
    cost = record["cpu_us_per_token"].get(role)
    return None if cost is None else Value(cost)


def _rounds(record: Record) -> str:
    rounds = record["rounds_tokens_per_s"]
    return f"{record['tokens_per_s']:,} ({min(rounds):,} to {max(rounds):,})"


def penalties(records: Sequence[Record]) -> View:
    """Lost throughput of each variant, with the interval of its median."""
    record = records[-1]
    costs = {name: each for name, each in record["variants"].items() if name != "baseline"}
    numbers: dict[str, float] = {"rounds": record["rounds"]}
    for name, each in costs.items():
        low, high = each["cost_interval"]
        numbers |= {slug(name): each["cost"], slug(name, "low"): low, slug(name, "high"): high}
    numbers["highest_low"] = max(each["cost_interval"][0] for each in costs.values())
    numbers["lowest_high"] = min(each["cost_interval"][1] for each in costs.values())
    numbers["highest"] = max(each["cost"] for each in costs.values())
    points = tuple(Row(name, (Value(each["cost"], *each["cost_interval"]),)) for name, each in costs.items())
    axis = "lost throughput, with the 95% interval of the median"
    plot = Plot("Cost of penalties to a server", axis, ("cost",), points, "{:.1%}", points=True)
    return View(
        numbers,
        ("variant", "tokens/s", "CPU, µs per token", "lost throughput", "95% interval"),
        tuple(_penalty_row(name, each) for name, each in record["variants"].items()),
        plot,
        (record,),
    )


def _penalty_row(name: str, each: dict[str, Any]) -> Cells:
    figures = (name, f"{each['tokens_per_s']:,.1f}", f"{each['cpu_us_per_token']:,.0f}")
    if name == "baseline":
        return (*figures, "", "")
    low, high = each["cost_interval"]
    return (*figures, f"{each['cost']:.1%}", f"{low:.1%} to {high:.1%}")


def sampling(records: Sequence[Record]) -> View:
    """Time that each feature adds to a step's sampling."""
    record = records[-1]
    read = record["read_us"]
    more = {name: added for name, (_, added) in record["features"].items() if added}
    numbers = {slug(name): added for name, added in more.items()} | {"read": read, "greedy": _greedy(record)}
    numbers |= {name: record[name] for name in ("rows", "vocab_size")}
    rows = tuple(
        (name, f"{whole:,.0f}", *((f"{added:,.0f}", f"{added / read:.1f}") if added else ("", "")))
        for name, (whole, added) in record["features"].items()
    )
    plot = Plot(
        f"Sampling of one step, {record['rows']} requests, vocabulary of {record['vocab_size']:,}",
        "microseconds more than a greedy step", ("added",), simple_rows(more), mark=(read, "one read of the logits"),
    )  # fmt: skip
    header = ("parameters", "sampling of a step, µs", "more than greedy, µs", "in reads of the logits")
    return View(numbers, header, rows, plot, (record,))


def _greedy(record: Record) -> float:
    return float(next(whole for whole, added in record["features"].values() if not added))
