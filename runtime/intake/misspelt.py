"""Names that are nearly those of a constraint. Unknown names are ignored; these would let an output have any form."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

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
UNKNOWN = "is no name that is known here: it would constrain nothing"


def refuse_misspelt(written: Mapping[str, Any], body: Struct, place: str = "") -> None:
    """`written`: what a client sent, of which `body` was made. Raises ClientError."""
    for name in written.keys() - _names(type(body)):
        if written[name] not in (None, "") and (instead := _of_body(name, type(body))):
            raise ClientError(place + name, UNKNOWN, f"send {instead}")
    inner = getattr(body, "sampling_params", None)
    if isinstance(inner, Struct):
        refuse_misspelt(written["sampling_params"], inner, "sampling_params.")
    elif isinstance(inner, list):
        for i, (one, made) in enumerate(zip(written["sampling_params"], inner, strict=True)):
            if made is not None:
                refuse_misspelt(one, made, f"sampling_params[{i}].")


@cache
def _names(type_: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in fields(type_))


@cache
def _built(type_: type[Struct]) -> frozenset[str]:
    """Those of its names that are not refused."""
    metas = ((field.encode_name, getattr(field.type, "__metadata__", ())) for field in fields(type_))
    return frozenset(name for name, marks in metas if not any("unbuilt" in (mark.extra or {}) for mark in marks))


@cache
def _of_body(name: str, type_: type[Struct]) -> str:
    if "regex" not in _names(type_):  # nothing is generated
        return ""
    return meant(name, _built(type_) & CONSTRAINTS) or meant(name, _names(type_) & CONSTRAINTS)


def meant(name: str, known: Collection[str]) -> str:
    """The one of these that a name stands for, or seems to."""
    named = [ours for ours in OTHERS.get(name, ()) if ours in known]
    return next(iter(named or get_close_matches(name, sorted(known), 1, CLOSE)), "")
