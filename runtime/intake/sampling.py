"""Sampling parameters as bodies have them: made from the checks of ipc/params.py, under the names that clients use.

Decides names, and what of several for one parameter counts. Errors name the field that the client wrote.
"""

from collections.abc import Mapping
from typing import Annotated, Any, get_type_hints

from msgspec import Meta, Struct

from ramet.ipc.params import CHECKS, SamplingParams, parse
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.fields import Field, including
from ramet.runtime.intake.unbuilt import unbuilt

# ours -> what clients call it; of several the first that is set counts
NAMES: dict[str, tuple[str, ...]] = {
    "max_new_tokens": ("max_completion_tokens", "max_tokens", "max_output_tokens"),
    "min_new_tokens": ("min_tokens",),
    "sampling_seed": ("sampling_seed", "seed"),
    "stop": ("stop", "stop_sequences"),
}
NOTES = {"sampling_seed": "goes before `seed`"}
OF_SOME = ("max_new_tokens", "stop", "n")  # not every endpoint has them, nor under one name

_ABOUT = {
    name: hint.__metadata__[0].description for name, hint in get_type_hints(SamplingParams, include_extras=True).items()
}


def sampled(name: str, note: str = "") -> Meta:
    """Says of a field that it is the sampling parameter `name`, which ipc/params.py checks."""
    text = f"{_ABOUT[name]}: {CHECKS[name].valid}" + (f"; {note}" if note else "")
    return Meta(description=text, extra_json_schema={"anyOf": [CHECKS[name].schema, {"type": "null"}]})


SHARED: list[Field] = [
    (name, Annotated[Any, sampled(ours, NOTES.get(name, ""))], None)
    for ours in CHECKS
    if ours not in OF_SOME
    for name in NAMES.get(ours, (ours,))
]


class Constraints(Struct, frozen=True, kw_only=True):
    """What an output keeps to."""

    json_schema: Annotated[str | dict[str, Any] | None, unbuilt("a JSON schema that the output keeps to")] = None
    regex: Annotated[str | None, unbuilt("a pattern that the output matches")] = None
    ebnf: Annotated[str | None, unbuilt("a grammar that the output keeps to")] = None
    structural_tag: Annotated[str | None, unbuilt("schemas between tags of the output")] = None


@including([(ours, Annotated[Any, sampled(ours)], None) for ours in CHECKS])
class GivenParams(Constraints, frozen=True, kw_only=True):
    """Sampling parameters under our names; docs/sampling.md shows them."""


def read_params(fields: Mapping[str, Any], defaults: SamplingParams) -> SamplingParams:
    """`fields`: a body's. Raises ClientError under the name that the client used."""
    given: dict[str, Any] = {}
    for ours, check in CHECKS.items():
        said = [name for name in NAMES.get(ours, (ours,)) if fields.get(name) is not None]
        given[ours] = fields[said[0]] if said else None
        for name in said[1:]:  # what another one goes before must be valid as well
            check.read(name, fields[name])
    try:
        return parse(given, defaults, "")
    except ClientError as error:
        raise _as_written(error, fields) from None


def _as_written(error: ClientError, fields: Mapping[str, Any]) -> ClientError:
    """The error under the name that the client used."""
    place, fact = error.place.removeprefix("."), error.fact
    for ours, names in NAMES.items():
        known = [name for name in names if name in fields]
        theirs = next((name for name in known if fields[name] is not None), known[0] if known else ours)
        if place == ours or place.startswith(ours + "["):
            place = theirs + place.removeprefix(ours)
        if ours == "max_new_tokens":
            fact = fact.replace(ours, theirs)
    return ClientError(place, fact, error.hint)
