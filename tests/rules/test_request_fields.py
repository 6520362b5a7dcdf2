"""A field of RequestSpec is named where it is defined, where it is read from a body, and where it takes effect.

Comments and texts do not count. A word that means something else elsewhere as well has a number of its own, so that its
use cannot grow unseen either.
"""

import ast
from pathlib import Path

import pytest

from ramet.ipc.spec import RequestSpec

ROOT = Path(__file__).resolve().parents[2]
MAX_MODULES = 6
ALSO_MEANT = {  # the modules that may name it, and what else it is there
    "params": 30,  # sampling parameters by themselves, on every path of a step; a template's and a processor's
    "logprobs": 28,  # what is computed and replied, beside what is asked
    "hidden": 24,  # hidden states and sizes in models, layers, engine and replies
    "namespace": 7,  # of the cache's tree and its leases; jinja's
    "processor": 7,  # the logit processor itself, in sampling and engine
}


def named_in(path: Path) -> set[str]:
    """Attributes, variables, fields, arguments and keywords of a module."""
    names = set[str | None]()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=name):
                names.add(name)
    return {name for name in names if name is not None}


NAMES = {
    str(path.relative_to(ROOT)): named_in(path)
    for room in ("ipc", "runtime")
    for path in sorted((ROOT / room).rglob("*.py"))
}


@pytest.mark.parametrize("field", RequestSpec.__struct_fields__)
def test_few_modules_name_a_field_of_a_request(field: str) -> None:
    naming = [path for path, names in NAMES.items() if field in names]
    assert len(naming) <= ALSO_MEANT.get(field, MAX_MODULES), naming


def test_only_fields_of_a_request_have_an_allowance() -> None:
    assert ALSO_MEANT.keys() <= set(RequestSpec.__struct_fields__)
