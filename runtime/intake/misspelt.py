"""Names that are nearly those of a constraint. Unknown names are ignored; these would let an output have any form."""

from collections.abc import Collection, Sequence, Set
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import fields

from ramet.runtime.errors import ClientError

CONSTRAINTS = frozenset(
    {
        "json_schema", "regex", "ebnf", "structural_tag", "grammar_backend", "response_format", "output_format",
        "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
        "guided_decoding_backend", "guided_whitespace_pattern",
    }
)  # fmt: skip
# what others call it, or it is called inside of structured_outputs -> ours, of which a body has some
OTHERS = {
    **dict.fromkeys(("json", "schema"), ("json_schema",)),
    "pattern": ("regex",),
    "grammar": ("ebnf",),
    **dict.fromkeys(("choice", "choices"), ("guided_choice", "structured_outputs", "regex")),
    "guided_decoding": ("structured_outputs", "json_schema"),
}
CLOSE = 0.8  # of 1: as alike as regex and regexp
ALIKE = 0.6  # as mode and modus: enough for a hint
UNREAD = "is not a known name"
UNKNOWN = f"{UNREAD}: it would constrain nothing"


MAX_COMPARED = 256  # different unknown names of a body, each compared letter by letter; more of them are data


class Unknown(NamedTuple):
    """Names of an object that mean nothing there: where the object stands, and what it was read as."""

    place: str
    names: Set[str]
    type_: type[Struct]


def refuse_misspelt(unknown: Sequence[Unknown]) -> None:
    """Raises ClientError where one of a body's unknown names stands, or seems to, for a constraint.

    A client that sends more than MAX_COMPARED different ones is refused for other names of constraints alone: to
    compare one takes as long as to parse hundreds. A name that stands in thousands of objects is compared once.
    """
    is_data = len(frozenset[str]().union(*(each.names for each in unknown))) > MAX_COMPARED
    instead_of: dict[tuple[str, type[Struct]], str] = {}
    for place, names, type_ in unknown:
        built, every = _constraints(type_)
        if not every:
            continue
        for name in sorted(names & OTHERS.keys() if is_data else names):
            key = name, type_
            if key not in instead_of:
                instead_of[key] = meant(name, built) or meant(name, every)
            if instead := instead_of[key]:
                raise ClientError(place + name, UNKNOWN, f"send {instead}")


@cache
def _constraints(type_: type[Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a body's fields that are constraints: first those that are not refused, then all. Both are empty for
    bodies that generate nothing.
    """
    metas = {field.encode_name: getattr(field.type, "__metadata__", ()) for field in fields(type_)}
    if "regex" not in metas:
        return (), ()
    every = tuple(sorted(CONSTRAINTS & metas.keys()))
    built = tuple(name for name in every if not any("unbuilt" in (mark.extra or {}) for mark in metas[name]))
    return built, every


def meant(name: str, known: Collection[str], cutoff: float = CLOSE) -> str:
    """The one of these that a name stands for, or seems to."""
    if named := next((ours for ours in OTHERS.get(name, ()) if ours in known), ""):
        return named
    near = [each for each in sorted(known) if _may_be(name, each, cutoff)]
    return next(iter(get_close_matches(name, near, 1, cutoff) if near else ()), "")


def _may_be(name: str, known: str, cutoff: float) -> bool:
    """Whether the names can be so alike: by their lengths, then by the letters that they share.

    A client's name may be as long as a body, and to compare it takes more than proportionally long.
    """
    least = cutoff * (len(name) + len(known)) / 2
    return min(len(name), len(known)) >= least and len(name) - len(name.translate(_without(known))) >= least


@cache
def _without(known: str) -> dict[int, None]:
    return dict.fromkeys(map(ord, known))
