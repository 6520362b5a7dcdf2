"""Graphs as JSON: a program without its Python, to be kept, shown, sent and run elsewhere."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any

from ramet.frontend import graph as graphs
from ramet.frontend import ir
from ramet.frontend.api import checked_sampling
from ramet.frontend.choices import check_method
from ramet.frontend.errors import ProgramError
from ramet.frontend.graph import Graph, Node, Parameter
from ramet.frontend.prompt import chained
from ramet.frontend.values import wanted_dtype
from ramet.frontend.written import read, written
from ramet.ipc.errors import ClientError

VERSION = 1
_NODES = {
    each.__name__: each
    for each in (
        ir.ConstantText, ir.Gen, ir.Select, ir.Begin, ir.End, ir.Media, ir.ScopeBegin, ir.ScopeEnd, graphs.Argument,
        graphs.VariableOf, graphs.Formatted, graphs.Fork, graphs.GetForkItem, graphs.Join, graphs.Call,
        graphs.SetVariable, graphs.Text, graphs.Prefetch,
    )
}  # fmt: skip
_VALUES = (("SetVariable", "value"), ("Formatted", "value"), ("Text", "parts"))  # fields that hold nodes
_TUPLES = ("choices", "streams")


def to_json(graph: Graph) -> str:
    """Raises ProgramError for what JSON has no form of: functions, values of other types."""
    whole = {
        "ramet_graph": VERSION,
        "name": graph.name,
        "parameters": [
            {"name": each.name, **({"default": _value(each.default)} if each.has_default else {})}
            for each in graph.parameters
        ],
        "spec_tokens": graph.spec_tokens,
        "nodes": [[stream, _node(expr)] for stream, expr in graph.nodes],
        "returned": _value(graph.returned),
    }
    return json.dumps(whole, ensure_ascii=False, indent=1)


def from_json(text: str) -> Graph:
    """Raises ValueError for what is no graph."""
    whole = json.loads(text)
    if not isinstance(whole, dict) or whole.get("ramet_graph") != VERSION:
        raise ValueError(f"this is no graph of ramet: ramet_graph must be {VERSION}")
    with _in("a parameter"):
        parameters = tuple(
            Parameter(each["name"], "default" in each, _read_value(each.get("default", {"value": None})))
            for each in whole["parameters"]
        )
    nodes = []
    for number, each in enumerate(whole.get("nodes", ())):
        with _in(f"node {number}"):
            stream, node = each
            nodes.append(Node(stream, _read_node(node)))
    with _in("the graph"):
        return Graph(whole["name"], parameters, tuple(nodes), _read_value(whole["returned"]), whole["spec_tokens"])


@contextmanager
def _in(place: str) -> Iterator[None]:
    """What is wrong with it, as a ValueError that names it."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"{place} has no {error}") from None
    except (TypeError, AttributeError, ValueError, ClientError) as error:
        raise ValueError(f"{place}: {error}") from None


def _node(expr: ir.Expr) -> dict[str, Any]:
    op = type(expr).__name__
    made: dict[str, Any] = {"op": op}
    for field in fields(expr):  # type: ignore[arg-type]
        value = getattr(expr, field.name)
        if field.default is not MISSING and value == field.default:
            continue
        if field.name == "read":
            _check_read(expr)
        else:
            made[field.name] = _field(op, field.name, value, expr)
    return made


def _check_read(expr: Any) -> None:
    """Values of a dtype are read by its name."""
    if expr.kind is None:
        raise ProgramError(f"{graphs.shown(expr)}: its values are of a type, which a graph in JSON does not have")


def _field(op: str, name: str, value: Any, expr: ir.Expr) -> Any:
    if (op, name) in _VALUES:
        return _value(list(value) if name == "parts" else value)
    match name:
        case "kind" if isinstance(value, type):
            return value.__name__
        case "held":
            return {"kind": value.kind, "value": value.value}
        case "method" if callable(value):
            raise ProgramError(
                f"{graphs.shown(expr)}: its choices_method is a function, which a graph in JSON does not have"
            )
        case "pieces":
            return written(chained(value))
        case "where":
            return list(value)
        case "source" if not isinstance(value, str):
            raise ProgramError(f"{graphs.shown(expr)}: it is in memory, and a graph in JSON has paths and URLs")
        case "sampling":
            sampling = dict(value)
            if "logit_bias" in sampling:
                sampling["logit_bias"] = {str(token): bias for token, bias in sampling["logit_bias"]}
            return {key: _plain(each, f"{graphs.shown(expr)}: {key}") for key, each in sampling.items()}
        case "options":
            return {key: _plain(each, f"{graphs.shown(expr)}: {key}") for key, each in value.items()}
    return value


def _plain(value: Any, what: str) -> Any:
    try:
        json.dumps(value)
    except TypeError as error:
        raise ProgramError(f"{what}: {error}") from None
    return value


def _value(value: Any) -> Any:
    if isinstance(value, ir.Expr):
        return _node(value)
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_value(each) for each in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_value(key), _value(each)] for key, each in value.items()]}
    return {"value": _plain(value, "a value of the graph")}


def _read_value(value: Any) -> Any:
    match value:
        case {"op": _}:
            return _read_node(value)
        case {"list": list() as each}:
            return list(map(_read_value, each))
        case {"tuple": list() as each}:
            return tuple(map(_read_value, each))
        case {"dict": list() as pairs}:
            return {_read_value(key): _read_value(each) for key, each in pairs}
        case {"value": constant}:
            return constant
    raise TypeError(f"{value!r} is no value")


def _read_node(made: Mapping[str, Any]) -> ir.Expr:
    if made.get("op") not in _NODES:
        raise TypeError(f"{made.get('op')!r} is no node")
    given = {name: _read_field(made["op"], name, value) for name, value in made.items() if name != "op"}
    if made["op"] == "Gen" and given.get("kind") is not None:
        wanted = wanted_dtype(given["kind"])
        given |= {"read": wanted.read, "kind": wanted.kind}
    node: ir.Expr = _NODES[made["op"]](**given)
    return node


def _read_field(op: str, name: str, value: Any) -> Any:
    if (op, name) in _VALUES:
        read_value = _read_value(value)
        return tuple(read_value) if name == "parts" else read_value
    match name:
        case "held":
            return ir.Held(value["kind"], value["value"])
        case "where":
            return ir.Where(*value)
        case "pieces":
            return tuple(read(value).pieces())
        case "method":
            return check_method(value)
        case "sampling":
            return checked_sampling(value)
    return tuple(value) if name in _TUPLES else value
