"""What is changed of a graph, and what is said of it, before it runs (section 4.3.2 of the SGLang paper).

Code movement: texts that the program calls movable() come before the arguments that stand before them, so that more of
a prompt is equal in all runs. Prefetching: the constant beginning of a program that is called later is computed while
the calls before it run.
"""

from collections.abc import Iterable
from dataclasses import replace

from ramet.frontend.graph import Graph
from ramet.frontend.hints import WORTH_CHARS
from ramet.frontend.in_a_row import calls_in_a_row
from ramet.frontend.ir import Begin, ConstantText, End, Expr, Gen, Media, ScopeBegin, ScopeEnd, Select
from ramet.frontend.nodes import (
    CONCATENATE,
    ROOT,
    Argument,
    Call,
    Fork,
    Formatted,
    GetForkItem,
    GraphNode,
    Join,
    Prefetch,
    SetVariable,
    VariableOf,
    shown,
    unknowns,
)
from ramet.frontend.prompt import EMPTY, Piece, Prompt, TurnBegin, TurnEnd

UNKNOWN = (Argument, VariableOf, Formatted)


def compiled(graph: Graph) -> Graph:
    return prefetching(moved(graph))


def moved(graph: Graph) -> Graph:
    """Movable texts come before the arguments and values of their part of the prompt.

    A part ends with a turn, a call, a fork, a join, a scope: nothing moves over these, for they read what is before.
    """
    places: list[list[GraphNode]] = []  # each has a node of the graph, and before it what is moved there
    first: dict[int, list[GraphNode]] = {}  # of each stream: that of the first value of its part
    begins_line = False  # the next node, in place of one that was moved away
    for node in graph.nodes:
        begins_line = begins_line and node.goes_on
        stream, expr, goes_on = node
        if isinstance(expr, ConstantText) and expr.movable and stream in first:
            value = first[stream][-1]
            first[stream][-1:] = [node._replace(goes_on=value.goes_on), value._replace(goes_on=True)]
            begins_line = begins_line or not goes_on
            continue
        places.append([node._replace(goes_on=goes_on and not begins_line)])
        begins_line = False
        if isinstance(expr, UNKNOWN) or (isinstance(expr, Media) and any(unknowns(expr))):
            first.setdefault(stream, places[-1])
        elif not isinstance(expr, ConstantText | Media):
            first.pop(stream, None)
    return replace(graph, nodes=tuple(node for each in places for node in each))


def prefetching(graph: Graph) -> Graph:
    """A Prefetch at the beginning for the constant prefix of each program that is called after a call of the model."""
    of_stream = graph.streams
    nodes = [node for node in graph.nodes if not isinstance(node.expr, Prefetch)]
    found: dict[tuple[Piece, ...], list[int]] = {}
    is_later = False
    for stream, expr, _ in nodes:
        is_later = is_later or isinstance(expr, Gen | Select)
        if isinstance(expr, Call) and is_later:
            prompt = constant_prefix(of_stream[stream][1:])
            if prompt.num_chars >= WORTH_CHARS:
                found.setdefault(tuple(prompt.pieces()), []).append(stream)
    prefetches = [GraphNode(ROOT, Prefetch(pieces, tuple(streams))) for pieces, streams in found.items()]
    return replace(graph, nodes=(*prefetches, *nodes))


def constant_prefix(exprs: Iterable[Expr]) -> Prompt:
    """What a stream begins with in every run."""
    prompt = EMPTY
    for expr in exprs:
        match expr:
            case ConstantText(text):
                prompt = prompt.extended(text)
            case Begin(role):
                prompt = prompt.extended(TurnBegin(role))
            case End(role):
                prompt = prompt.extended(TurnEnd(role))
            case _ if not _ends_constants(expr):
                continue
            case _:
                break
    return prompt


def _ends_constants(expr: Expr) -> bool:
    """Whether a prompt has something here that is not the same in every run."""
    nothing = (ConstantText, Begin, End, ScopeBegin, ScopeEnd, SetVariable, Fork, GetForkItem, Call, Prefetch)
    return not isinstance(expr, nothing) and not (isinstance(expr, Join) and expr.mode != CONCATENATE)


def explain(graph: Graph) -> str:
    """What a run shares with others, and how long it waits, in words."""
    exprs = graph.streams[ROOT]
    prefix = constant_prefix(exprs).num_chars
    calls = sum(isinstance(node.expr, Gen | Select) for node in graph.nodes)
    in_a_row = calls_in_a_row(graph)
    lines = [
        "1 call of the model" if calls == 1 else f"{calls} calls of the model, at most {in_a_row} after one another"
    ]
    at = next((number for number, expr in enumerate(exprs) if _ends_constants(expr)), None)
    if at is None:
        lines.append(f"{prefix} characters of its prompt are the same in every run")
    else:
        lines.append(f"{prefix} characters are the same in every run; then comes {shown(exprs[at])}")
        behind = _chars_behind(exprs[at:])
        if behind >= WORTH_CHARS:
            lines.append(
                f"{behind} more characters of constants come after it: where their place does not matter, use movable()"
            )
    lines += [shown(node.expr) for node in graph.nodes if isinstance(node.expr, Prefetch)]
    return "\n".join(lines)


def _chars_behind(exprs: Iterable[Expr]) -> int:
    """Of constants that could be moved before the first value, with which the expressions begin."""
    num = 0
    for expr in exprs:
        if isinstance(expr, ConstantText):
            num += len(expr.text)
        elif not isinstance(expr, (*UNKNOWN, Media)):
            break
    return num
