"""What is changed of a graph, and what is said of it, before it runs (section 4.3.2 of the SGLang paper).

Code movement: texts that the program calls movable() come before the arguments that stand before them, so that more of
a prompt is equal in all runs. Prefetching: the constant beginning of a program that is called later is computed while
the calls before it run.
"""

from collections.abc import Iterable
from dataclasses import replace

from ramet.frontend.graph import (
    CONCATENATE,
    ROOT,
    Argument,
    Call,
    Fork,
    Formatted,
    Graph,
    Join,
    Node,
    Prefetch,
    SetVariable,
    VariableOf,
    shown,
    unknowns,
)
from ramet.frontend.hints import WORTH_CHARS
from ramet.frontend.ir import Begin, ConstantText, End, Expr, Gen, ScopeEnd, Select
from ramet.frontend.prompt import EMPTY, Piece, Prompt, TurnBegin, TurnEnd

UNKNOWN = (Argument, VariableOf, Formatted)


def compiled(graph: Graph) -> Graph:
    return prefetching(moved(graph))


def moved(graph: Graph) -> Graph:
    """Movable texts come before the arguments and values of their part of the prompt.

    A part ends with a turn, a call, a fork, a join, a scope: nothing moves over these, for they read what is before.
    """
    nodes: list[list[Node]] = []  # each a node of the graph, and before it what is moved there
    first: dict[int, list[Node]] = {}  # of each stream: that of the first value of its part
    for node in graph.nodes:
        stream, expr = node
        if isinstance(expr, ConstantText) and expr.movable and stream in first:
            first[stream].insert(-1, node)
            continue
        nodes.append([node])
        if isinstance(expr, UNKNOWN):
            first.setdefault(stream, nodes[-1])
        elif not isinstance(expr, ConstantText):
            first.pop(stream, None)
    return replace(graph, nodes=tuple(node for each in nodes for node in each))


def prefetching(graph: Graph) -> Graph:
    """A Prefetch at the beginning for the constant prefix of each program that is called after a call of the model."""
    of_stream = graph.streams
    nodes = [node for node in graph.nodes if not isinstance(node.expr, Prefetch)]
    found: dict[tuple[Piece, ...], list[int]] = {}
    is_later = False
    for stream, expr in nodes:
        is_later = is_later or isinstance(expr, Gen | Select)
        if isinstance(expr, Call) and is_later:
            prompt = constant_prefix(of_stream[stream][1:])
            if prompt.num_chars >= WORTH_CHARS:
                found.setdefault(tuple(prompt.pieces()), []).append(stream)
    prefetches = [Node(ROOT, Prefetch(pieces, tuple(streams))) for pieces, streams in found.items()]
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
            case Prefetch():
                continue
            case _:
                break
    return prompt


def explain(graph: Graph) -> str:
    """What a run shares with others, and how long it waits, in words."""
    exprs = graph.streams[ROOT]
    prefix = constant_prefix(exprs).num_chars
    calls = sum(isinstance(expr, Gen | Select) for _, expr in graph.nodes)
    in_a_row = calls_in_a_row(graph)
    lines = [
        "1 call of the model" if calls == 1 else f"{calls} calls of the model, at most {in_a_row} after one another"
    ]
    if not any(isinstance(expr, UNKNOWN) for expr in exprs):
        lines.append(f"{prefix} characters of its prompt are the same in every run")
    else:
        value = next(expr for expr in exprs if isinstance(expr, UNKNOWN))
        lines.append(f"{prefix} characters are the same in every run; then comes {shown(value)}")
        behind = sum(len(expr.text) for expr in exprs if isinstance(expr, ConstantText)) - prefix
        if behind >= WORTH_CHARS:
            lines.append(
                f"{behind} more characters of constants come after it: where their place does not matter, use movable()"
            )
    lines += [shown(expr) for _, expr in graph.nodes if isinstance(expr, Prefetch)]
    return "\n".join(lines)


def calls_in_a_row(graph: Graph) -> int:
    """Calls of the model that wait for one another, at most: what a run's latency is made of."""
    depth: dict[int, int] = {}  # calls that the end of each stream waits for, so far
    of_variable: dict[tuple[int, str], int] = {}
    children: dict[int, range] = {}  # of forks, by the first

    def of(value: VariableOf) -> int:
        return of_variable.get((value.stream, value.name), depth.get(value.stream, 0))

    for stream, expr in graph.nodes:
        before = max((of(each) for each in unknowns(expr) if isinstance(each, VariableOf)), default=0)
        here = depth[stream] = max(depth.get(stream, 0), before) + isinstance(expr, Gen | Select)
        match expr:
            case Gen(str() as name) | Select(str() as name) | ScopeEnd(name):
                of_variable[stream, name] = here
            case SetVariable(name):
                of_variable[stream, name] = before
            case Fork(first, size):
                children[first] = range(first, first + size)
                depth |= dict.fromkeys(children[first], here)
            case Join(first, mode):
                for child, name in [key for key in of_variable if key[0] in children[first]]:
                    of_variable[stream, name] = max(of_variable[child, name], of_variable.get((stream, name), 0))
                if mode == CONCATENATE:
                    depth[stream] = max(depth[child] for child in children[first])
    return max(depth.values(), default=0)
