"""What each backend enforces, found by asking it: the tables of docs/structured-output.md and the tests of them.

A keyword is enforced where the backend takes exactly the values that a validator calls valid; it is refused where the
error names it. A third case is an AssertionError.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from constrained import backend, compiled, ids_of, takes

from grammar_cases.probes import REFUSED, SCHEMAS, VALUES, is_valid
from grammar_cases.refusals import ALL, PARTS, SHAPES, Part, names, partly
from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import BackendName, GrammarError
from ramet.runtime.grammar.formats import FORMATS

RECURSIVE = {"type": "array", "items": {"$ref": "#"}}
TAG = {"type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}}}
KINDS = {  # what may be asked -> constraint, an output of it, one that is none
    "patterns": (ConstraintKind.REGEX, "[a-c]{2}|é", "é", "a"),
    "grammars in GBNF": (ConstraintKind.EBNF, 'root ::= "(" root ")" | "x"', "((x))", "(x"),
    "grammars in Lark's notation": (ConstraintKind.EBNF, 'start: "(" start ")" | "x"', "((x))", "(x"),
    "schemas that refer to themselves": (ConstraintKind.JSON_SCHEMA, json.dumps(RECURSIVE), "[[], []]", "[1]"),
    "schemas that allow any value": (ConstraintKind.JSON_SCHEMA, "{}", '{"a": [1, null]}', "[1"),
    "structural tags": (ConstraintKind.STRUCTURAL_TAG, {**TAG, "end": "</n>"}, "<n>3</n>", "<n>x</n>"),
    "free text in them": (ConstraintKind.STRUCTURAL_TAG, {"type": "any_text"}, "a <b>", None),
    "special tokens in them": (
        ConstraintKind.STRUCTURAL_TAG,
        {"type": "tag", "begin": "<tool_call>", "content": {"type": "regex", "pattern": "x"}, "end": "</tool_call>"},
        "<tool_call>x</tool_call>",
        "x",
    ),
}


def enforced(name: BackendName, keyword: str) -> bool:
    """False: it is refused by its name."""
    refused = [not exact(name, keyword, schema) for schema in SCHEMAS.get(keyword, ())]
    refused += [not exact(name, keyword, {"type": "array", "items": schema}) for schema in refusable(keyword)]
    assert any(refused) == all(refused), f"{name} enforces {keyword} in some schemas only"
    return not any(refused)


def refusable(keyword: str) -> list[Any]:
    return [REFUSED[keyword]] if keyword in REFUSED and keyword not in SCHEMAS else []


def exact(name: BackendName, keyword: str, schema: Any) -> bool:
    try:
        ready = compiled(name, ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    except GrammarError as error:
        assert f"{name} does not enforce {keyword!r}" in error.fact, f"{schema}: {error.fact}"
        return False
    for value in VALUES:
        taken = takes(ready, json.dumps(value, ensure_ascii=False))
        assert taken == is_valid(schema, value), f"{name} {'takes' if taken else 'refuses'} {value!r} of {schema}"
    return True


def refuses(name: BackendName, part: Part, schema: Any) -> bool:
    """Whether it refuses the schema. The error names a keyword of the part."""
    try:
        compiled(name, ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    except GrammarError as error:
        assert names(error, part.keywords), f"{name}: {schema}: {error.fact}"
        return True
    return False


def offers(name: BackendName, asked: str) -> bool:
    """Whether it takes such a constraint, and then only its outputs."""
    kind, made, output, other = KINDS[asked]
    text = made if isinstance(made, str) else json.dumps({"type": "structural_tag", "format": made})
    try:
        ready = compiled(name, kind, text)
    except GrammarError:
        return False
    assert takes(ready, output) and (other is None or not takes(ready, other)), f"{name}: {asked}"
    return True


def jumps(name: BackendName) -> tuple[bool, bool]:
    """Whether it knows the tokens that are forced, and their text."""
    grammar = compiled(name, ConstraintKind.REGEX, "The answer is [0-9]").start()
    tokens = ids_of("The answer is 4")
    forced = grammar.forced()
    assert bool(forced) == backend(name).canonical and forced == tokens[: len(forced)]
    return bool(forced), bool(grammar.forced_text())


def table() -> str:
    return "\n".join([*_kinds(), "", *_keywords(), "", *_parts(), "", *_shapes()])


def _row(first: str, cells: Iterator[str] | list[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _head(first: str) -> list[str]:
    return [_row(first, list(ALL)), "|" + "---|" * (len(ALL) + 1)]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _kinds() -> Iterator[str]:
    yield from _head("")
    for asked in KINDS:
        yield _row(asked, [_yes(offers(name, asked)) for name in ALL])
    found = [jumps(name) for name in ALL]
    yield _row("`--jump-forward ff`", [_yes(canonical) for canonical, _ in found])
    yield _row("`--jump-forward retokenize`", [_yes(text) for _, text in found])


def _keywords() -> Iterator[str]:
    yield from _head("keyword")
    cells = {keyword: tuple(_cell(name, keyword) for name in ALL) for keyword in (*SCHEMAS, *REFUSED)}
    for row, keywords in groupby(sorted(cells, key=lambda keyword: _order(cells[keyword])), cells.__getitem__):
        yield _row(", ".join(f"`{keyword}`" for keyword in keywords), list(row))


def _order(row: tuple[str, ...]) -> list[int]:
    return [("yes", "in part", "no").index(cell) for cell in row]


def _cell(name: BackendName, keyword: str) -> str:
    if not enforced(name, keyword):
        return "no"
    return "in part" if keyword in partly(name) else "yes"


def _parts() -> Iterator[str]:
    yield from ("| in part | what is refused | by |", "|---|---|---|")
    for part in PARTS:
        by = "all" if part.backends == ALL else ", ".join(part.backends)
        yield f"| {', '.join(f'`{keyword}`' for keyword in part.keywords)} | {part.refused} | {by} |"


def _shapes() -> Iterator[str]:
    yield f"The formats are {', '.join(f'`{name}`' for name in sorted(FORMATS))}."
    for name in ALL:
        if SHAPES.get(name):
            words = ", ".join(f'"{shape}"' for shape in SHAPES[name])
            yield f"Besides, {name} refuses whole schemas with the words {words}."
