"""Types of bodies: no pattern where msgspec cannot hold one, and ids that fit a line of the log."""

import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.fields import RID
from ramet.runtime.server.routes import ROUTES


def hints_within(hint: Any, seen: set[Any]) -> Iterator[Any]:
    """A type and all it is made of, those of structs' fields too."""
    yield hint
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in seen:
        seen.add(hint)
        for each in get_type_hints(hint, include_extras=True).values():
            yield from hints_within(each, seen)
    for each in get_args(hint):
        yield from hints_within(each, seen)


def has_pattern(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(getattr(meta, "pattern", None) for meta in hint.__metadata__)


@pytest.mark.parametrize(
    "body", dict.fromkeys(route.body for route in ROUTES.values() if route.body), ids=lambda body: body.__name__
)
def test_no_pattern_stands_beside_a_list_or_an_object(body: type) -> None:
    """msgspec 0.22 corrupts its memory there."""
    unions = [each for each in hints_within(body, set()) if get_origin(each) in (Union, types.UnionType)]
    for union in unions:
        if any(map(has_pattern, get_args(union))):
            assert len([each for each in get_args(union) if each is not type(None)]) == 1, union


def test_every_struct_with_a_marked_field_refuses_by_it() -> None:
    seen: set[Any] = set()
    for route in ROUTES.values():
        list(hints_within(route.body, seen))
    marked = {
        struct for struct in seen for field in msgspec.structs.fields(struct)
        if any("unbuilt" in (meta.extra or {}) for meta in getattr(field.type, "__metadata__", ()))
    }  # fmt: skip
    assert len(marked) >= 8
    assert not [struct for struct in marked if not issubclass(struct, Checked)]


@pytest.mark.parametrize("rid", ["", "a\n", "a\nb", "\u2028", "\x7f", "x" * 257])
def test_what_cannot_stand_in_a_line_is_no_id(rid: str) -> None:
    assert not re.search(RID, rid)


@pytest.mark.parametrize("rid", ["a", "a b", "日", "x" * 256])
def test_an_id_is_any_other_text(rid: str) -> None:
    assert re.search(RID, rid)
