"""A field of RequestSpec is named where it is defined, where it is read from a body, and where it takes effect.

Two counts. By word: every module whose code names the field at all (comments and texts do not count); words that also
mean something else have a number of their own, so that their use cannot grow unseen either. By meaning: every module
but that of the definition that takes the field from a spec, or gives it to one.
"""

import ast
from pathlib import Path

import pytest

from ramet.ipc.spec import RequestSpec

DEFINED_IN = "ipc/spec.py"
ROOT = Path(__file__).resolve().parents[2]
MAX_MODULES = 6
ALSO_MEANT = {  # the modules that may name it, and what else it is there
    "params": 28,  # sampling parameters by themselves, on every path of a step; a template's and a processor's
    "logprobs": 31,  # what is computed and replied, beside what is asked
    "hidden": 28,  # hidden states and sizes in models, layers, engine and replies
    "namespace": 9,  # the cache's own, in which a request's may be one part; a viewer is told a number for it
    "priority": 8,  # of a row in the queue that a viewer is told of
    "constraint": 24,  # what a grammar backend compiles, by itself
}
MAKERS = ("RequestSpec", "read_spec", "replace")


def words_of(tree: ast.Module) -> set[str]:
    """Attributes, variables, fields, arguments and keywords of a module."""
    names = set[str | None]()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=name):
                names.add(name)
    return {name for name in names if name is not None}


def taken_from_a_spec(tree: ast.Module) -> set[str]:
    """x in `spec.x`, `anything.spec.x`, `RequestSpec(x=...)` and `replace(spec, x=...)`."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="spec") | ast.Attribute(attr="spec"), attr=name):
                names.add(name)
            case ast.Call(func=ast.Name(id=called), keywords=keywords) if called in MAKERS:
                names |= {keyword.arg for keyword in keywords if keyword.arg is not None}
    return names


TREES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text())
    for room in ("ipc", "runtime")
    for path in sorted((ROOT / room).rglob("*.py"))
}
WORDS = {path: words_of(tree) for path, tree in TREES.items()}
TAKEN = {path: taken_from_a_spec(tree) for path, tree in TREES.items()}


@pytest.mark.parametrize("field", RequestSpec.__struct_fields__)
def test_few_modules_name_a_field_of_a_request(field: str) -> None:
    naming = [path for path, words in WORDS.items() if field in words]
    assert len(naming) <= ALSO_MEANT.get(field, MAX_MODULES), naming


@pytest.mark.parametrize("field", RequestSpec.__struct_fields__)
def test_few_modules_take_a_field_from_a_request(field: str) -> None:
    taking = [path for path, names in TAKEN.items() if field in names and path != DEFINED_IN]
    assert len(taking) <= MAX_MODULES, taking


def test_only_fields_of_a_request_have_an_allowance() -> None:
    assert ALSO_MEANT.keys() <= set(RequestSpec.__struct_fields__)
