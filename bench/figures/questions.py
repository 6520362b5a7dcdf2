"""Which lines answer which question of docs/performance.md, and by which view.

A view gets the lines of one machine class that fit it, oldest first, and chooses the newest. Its numbers are named
after what the line calls them, so that a conclusion can cite every cell of the table.
"""

from collections.abc import Mapping
from functools import partial

from ramet.bench.figures.constraints import compiles, jump_forward, masks
from ramet.bench.figures.costs import penalties, phases, pipeline, sampling
from ramet.bench.figures.engines import busy, engines, http, is_kind, starts
from ramet.bench.figures.programs import (
    ablations,
    has_forward,
    hit_rates,
    is_hit_rates,
    is_parts,
    is_policies,
    is_speed,
    sharing,
    speed,
    tree_cost,
)
from ramet.bench.figures.records import MachineClass, Record, by_class
from ramet.bench.figures.server import options, startup, tuning
from ramet.bench.figures.throughput import context_growth, growth, offline, prompts
from ramet.bench.figures.view import FigureQuestion, View
from ramet.bench.loads import LOADS

Results = Mapping[str, list[Record]]


def _compares(record: Record) -> bool:
    """All loads of the default, against another side."""
    loads = {load["load"]: load for load in record.get("loads", ())}
    return all(load.name in loads and "ratio" in loads[load.name] for load in LOADS)


def _has_growth(record: Record) -> bool:
    return "growth" in record


def _has_contexts(record: Record) -> bool:
    return any(load.get("cached") for load in record.get("growth", ()))


def _grows(record: Record) -> bool:
    """Of one request and of many."""
    return _has_growth(record) or _compares(record)


def _has_phases(record: Record) -> bool:
    return "phase_shares" in record


def _own_server(record: Record) -> bool:
    """Of a server that runs elsewhere only the client's CPU time is known."""
    return "scheduler" in record["cpu_us_per_token"]


def _has_all_backends(record: Record) -> bool:
    return "--backend" not in record["command"] and "--case" not in record["command"]


def _always(record: Record) -> bool:
    return True


def _has_memory(record: Record) -> bool:
    """Older lines are of another model."""
    return "memory" in record


QUESTIONS = {
    "offline": FigureQuestion("offline", _compares, offline),
    "engines": FigureQuestion("peers", partial(is_kind, "engines"), engines),
    "engine_starts": FigureQuestion("peers", partial(is_kind, "starts"), starts),
    "busy": FigureQuestion("peers", partial(is_kind, "busy"), busy),
    "http": FigureQuestion("peers", partial(is_kind, "http"), http),
    "growth": FigureQuestion("offline", _grows, growth),
    "prompts": FigureQuestion("offline", _has_growth, prompts),
    "context_growth": FigureQuestion("offline", _has_contexts, context_growth),
    "phases": FigureQuestion("offline", _has_phases, phases),
    "pipeline": FigureQuestion("pipeline", _own_server, pipeline),
    "penalties": FigureQuestion("penalties", _always, penalties),
    "sampling": FigureQuestion("sampling", _always, sampling),
    "jump_forward": FigureQuestion("structured", _always, jump_forward),
    "masks": FigureQuestion("masks", _has_all_backends, masks),
    "compiles": FigureQuestion("compiles", _always, compiles),
    "programs": FigureQuestion("programs", is_speed, speed),
    "sharing": FigureQuestion("programs", is_speed, sharing),
    "tree_cost": FigureQuestion("overhead", has_forward, tree_cost),
    "hit_rates": FigureQuestion("programs", is_hit_rates, hit_rates),
    "policies": FigureQuestion("programs", is_policies, ablations),
    "parts": FigureQuestion("programs", is_parts, ablations),
    "startup": FigureQuestion("startup", _has_memory, startup),
    "tuning": FigureQuestion("tuning", _always, tuning),
    "options": FigureQuestion("tuning", _always, options),
}


def views_of(name: str, results: Results) -> dict[MachineClass, View]:
    question = QUESTIONS[name]
    fitting = [record for record in results.get(question.file, ()) if question.fits(record)]
    return {machine: question.view(records) for machine, records in by_class(fitting).items()}
