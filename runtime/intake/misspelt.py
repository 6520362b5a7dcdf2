"""Names that are nearly those of a constraint. Unknown names are ignored; these would let an output have any form."""

from collections.abc import Collection
from difflib import get_close_matches
from functools import cache

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
UNREAD = "is no name that is known here"
UNKNOWN = f"{UNREAD}: it would constrain nothing"


@cache
def _built(type_: type[Struct]) -> frozenset[str]:
    """Those of its names that are not refused."""
    metas = ((field.encode_name, getattr(field.type, "__metadata__", ())) for field in fields(type_))
    return frozenset(name for name, marks in metas if not any("unbuilt" in (mark.extra or {}) for mark in marks))


def refuse_misspelt(place: str, name: str, type_: type[Struct]) -> None:
    """`name`: unknown to a body of this type. Raises ClientError where it stands, or seems to, for a constraint."""
    every = frozenset(field.encode_name for field in fields(type_))
    if "regex" in every:  # otherwise nothing is generated
        instead = meant(name, _built(type_) & CONSTRAINTS) or meant(name, every & CONSTRAINTS)
        if instead:
            raise ClientError(place + name, UNKNOWN, f"send {instead}")


def meant(name: str, known: Collection[str], cutoff: float = CLOSE) -> str:
    """The one of these that a name stands for, or seems to."""
    named = [ours for ours in OTHERS.get(name, ()) if ours in known]
    return next(iter(named or get_close_matches(name, sorted(known), 1, cutoff)), "")
