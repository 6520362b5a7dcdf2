"""Graphs as JSON: a program without its Python, to be kept, shown, sent and run elsewhere.

What is read may be anybody's: it has the types that the nodes' fields have, and graph_checks.py looks at the rest.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import msgspec

from ramet.frontend import ir, nodes
from ramet.frontend.api import OPTIONS, checked_sampling, media_options
from ramet.frontend.choices import check_method
from ramet.frontend.errors import ProgramError
from ramet.frontend.graph import Graph
from ramet.frontend.graph_checks import APPENDED, OTHERS
from ramet.frontend.media import Source, sent, source_of
from ramet.frontend.nodes import GraphNode, Parameter, Text, shown
from ramet.frontend.prompt import chained
from ramet.frontend.values import wanted_dtype
from ramet.frontend.written import read, written
from ramet.ipc.errors import ClientError

VERSION = 1
MAX_DEPTH = 200  # of lists and objects inside one another
HELD = ("regex", "json_schema", "ebnf", "structural_tag")
_CONSTANTS = (str, int, float, bool, type(None))
_NODES = {each.__name__: each for each in (*APPENDED, *OTHERS, Text)}
_VALUES = (("SetVariable", "value"), ("Formatted", "value"), ("Text", "parts"))  # fields that hold nodes
_TYPES: Mapping[tuple[str, str], Any] = {  # in JSON, where it is another than the field's
    ("Gen", "kind"): Literal["int", "float", "bool", "str"] | None,
    ("Media", "source"): Any,
    ("Prefetch", "pieces"): list[Any],
}


class _Parameter(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    default: Any = msgspec.UNSET
    keyword_only: bool = False


class _Whole(msgspec.Struct, forbid_unknown_fields=True):
    ramet_graph: int
    name: str
    parameters: list[_Parameter]
    nodes: list[Any]
    returned: Any
    spec_tokens: Annotated[int, msgspec.Meta(ge=1)] | None
    is_async: bool = False


class _GraphEntry(NamedTuple):
    """Of the list of nodes."""

    stream: int
    expr: dict[str, Any]
    goes_on: bool = False


def to_json(graph: Graph) -> str:
    """Raises ProgramError for what JSON has no form of: functions, values of other types."""
    parameters = [
        _Parameter(each.name, _value(each.default) if each.has_default else msgspec.UNSET, each.keyword_only)
        for each in graph.parameters
    ]
    entries = [[each.stream, _node(each.expr), *([True] if each.goes_on else [])] for each in graph.nodes]
    returned = _value(graph.returned)
    whole = _Whole(VERSION, graph.name, parameters, entries, returned, graph.spec_tokens, graph.is_async)
    return json.dumps(msgspec.to_builtins(whole), ensure_ascii=False, indent=1)


def from_json(text: str) -> Graph:
    """Raises ValueError for what is no graph."""
    with _in("the graph"):
        found = json.loads(text)
        _check_depth(found)
    if not isinstance(found, dict) or found.get("ramet_graph") != VERSION:
        raise ValueError(f"this is not a graph of ramet: ramet_graph must be {VERSION}")
    with _in("the graph"):
        whole = msgspec.convert(found, _Whole)
        parameters = tuple(_read_parameter(each) for each in whole.parameters)
        returned = _read_value(whole.returned)
    entries = []
    for number, each in enumerate(whole.nodes):
        with _in(f"node {number}"):
            entry = msgspec.convert(each, _GraphEntry)
            entries.append(GraphNode(entry.stream, _read_node(entry.expr), entry.goes_on))
    return Graph(whole.name, parameters, tuple(entries), returned, whole.spec_tokens, whole.is_async)


@contextmanager
def _in(place: str) -> Iterator[None]:
    """What is wrong with it, as a ValueError that names it."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, ClientError, RecursionError) as error:
        raise ValueError(f"{place}: {error}") from None


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [each for one in level for each in _inside(one)]
        if not level:
            return
    raise ValueError(f"more than {MAX_DEPTH} lists and objects are inside one another")


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


# -- writing -----------------------------------------------------------------------------------------------------------


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
        raise ProgramError(f"{shown(expr)}: its values are of a type, which a graph in JSON does not have")


def _field(op: str, name: str, value: Any, expr: ir.Expr) -> Any:
    if (op, name) in _VALUES:
        return _value(list(value) if name == "parts" else value)
    match name:
        case "kind" if isinstance(value, type):
            return value.__name__
        case "held":
            return {"kind": value.kind, "value": value.value}
        case "method" if callable(value):
            raise ProgramError(f"{shown(expr)}: its choices_method is a function, which a graph in JSON does not have")
        case "pieces":
            return written(chained(value))
        case "where":
            return list(value)
        case "source":
            return _node(value) if isinstance(value, ir.Expr) else _written_source(expr.kind, value)  # type: ignore[attr-defined]
        case "sampling":
            sampling = dict(value)
            if "logit_bias" in sampling:
                sampling["logit_bias"] = {str(token): bias for token, bias in sampling["logit_bias"]}
            return {key: _plain(each, f"{shown(expr)}: {key}") for key, each in sampling.items()}
        case "options":
            return {key: _plain(each, f"{shown(expr)}: {key}") for key, each in value.items()}
    return value


def _written_source(kind: str, source: Source) -> str:
    """What is in memory goes with the graph."""
    return source if isinstance(source, str) else sent(kind, source).as_url


def _plain(value: Any, what: str) -> Any:
    try:
        json.dumps(value)
    except TypeError as error:
        raise ProgramError(f"{what}: {error}") from None
    return value


def _value(value: Any) -> Any:
    """Of exact types: one of another class would be read as one of these."""
    if isinstance(value, ir.Expr):
        return _node(value)
    kind = type(value)
    if kind in (list, tuple):
        return {kind.__name__: [_value(each) for each in value]}
    if kind is dict:
        return {"dict": [[_value(key), _value(each)] for key, each in value.items()]}
    if kind not in _CONSTANTS:
        raise ProgramError(f"a value of the graph is a {kind.__name__}, which is not JSON serializable")
    return {"value": value}


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_parameter(read: _Parameter) -> Parameter:
    has_default = read.default is not msgspec.UNSET
    return Parameter(read.name, has_default, _read_value(read.default) if has_default else None, read.keyword_only)


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
        case {"value": constant} if isinstance(constant, _CONSTANTS):
            return constant
    raise TypeError(f"{value!r} is no value")


def _read_node(made: Mapping[str, Any]) -> ir.Expr:
    op = made.get("op")
    if not isinstance(op, str) or op not in _NODES:
        raise TypeError(f"{op!r} is no node")
    kinds = get_type_hints(_NODES[op])
    known = {field.name: field for field in fields(_NODES[op]) if field.name != "read"}
    if unknown := made.keys() - known.keys() - {"op"}:
        raise TypeError(f"{op} has no field {min(unknown)!r}")
    missing = [name for name, field in known.items() if field.default is MISSING and name not in made]
    if missing:
        raise TypeError(f"{op} needs {missing[0]!r}")
    given = {name: _read_field(op, name, value, kinds[name]) for name, value in made.items() if name != "op"}
    if op == "Gen" and given.get("kind") is not None:
        wanted = wanted_dtype(given["kind"])
        given |= {"read": wanted.read, "kind": wanted.kind}
    if op == "Media" and isinstance(given["source"], str):
        given["source"] = source_of(given["kind"], given["source"])
    node: ir.Expr = _NODES[op](**given)
    _check(node)
    return node


def _read_field(op: str, name: str, value: Any, kind: Any) -> Any:
    if (op, name) in _VALUES:
        read_value = _read_value(value)
        return tuple(read_value) if name == "parts" else read_value
    try:
        converted = msgspec.convert(value, _TYPES.get((op, name), kind))
    except msgspec.ValidationError as error:
        raise TypeError(f"{name}: {error}") from None
    match name:
        case "pieces":
            return tuple(read(converted).pieces())
        case "method":
            return check_method(converted)
        case "source":
            return _read_node(converted) if isinstance(converted, dict) else converted
        case "sampling":
            return checked_sampling(converted)
    return converted


def _check(node: ir.Expr) -> None:
    """What gen() and select() check of their arguments."""
    match node:
        case ir.Gen(name, held=held):
            _names(node.options, OPTIONS, "options")
            if name == "":
                raise ValueError("its name is empty")
            if held is not None and held.kind not in HELD:
                raise ValueError(f"held is of the kind {held.kind!r}, must be one of {', '.join(HELD)}")
        case ir.Select(_, _, choices, _, temperature, options):
            _names(options, ir.SELECT_OPTIONS, "options")
            checked_sampling({"temperature": temperature, "sampling_seed": options.get("sampling_seed")})
            if not choices or "" in choices or len(set(choices)) < len(choices):
                raise ValueError(f"choices are {choices!r}, must be at least one text, none of them empty or twice")
        case ir.Media(kind, source, _, options):
            media_options(kind, **options)
            if not isinstance(source, ir.Expr | str):
                raise TypeError(f"source is of type {type(source).__name__}, must be a path, a URL or a node")
        case nodes.Call():
            _names(node.options, OPTIONS, "options")
            if node.spec_tokens is not None and node.spec_tokens < 1:
                raise ValueError(f"spec_tokens is {node.spec_tokens}, must be >= 1")


def _names(given: Mapping[str, Any], known: Any, field: str) -> None:
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{field} have {unknown[0]!r}, which is not a parameter of calls")
