"""How an output that keeps to something is asked of a service, and how its text is read from the answer.

Chat APIs keep answers to JSON only. So a number, a choice or what matches a regular expression is asked for as the one
field of an object, and the field's value becomes the output's text, as `dtype` and `select` want it.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ramet.frontend.backends.schemas import FIELD, Rules, adapted, rooted, wrapped
from ramet.frontend.ir import Held

Fields = Mapping[str, Any]  # of a body


class EnforcedForm(NamedTuple):
    """`read`: the output's text of an answer, or ValueError; None: the answer is the text.

    Stop texts are sent where the answer is the text; else they end what is read.
    """

    fields: Fields
    read: Callable[[str], str] | None = None


FREE = EnforcedForm({})


class Schema(NamedTuple):
    """What an answer in JSON keeps to."""

    schema: dict[str, Any]
    read: Callable[[str], str] | None


KINDS: Mapping[type, str] = {int: "integer", float: "number", bool: "boolean", str: "string"}


def schema_of(held: Held, kind: type | None, rules: Rules | None) -> Schema:
    """`rules`: what the service enforces; None: all of it. Raises ValueError for what breaks them, or is no schema."""
    if kind is not None:
        return Schema(wrapped({"type": KINDS[kind]}), lambda answer: _READ[kind](_field(answer)))
    if held.kind == "regex":
        pattern = {"type": "string", "pattern": f"^({held.value})$"}  # llama.cpp knows no other groups
        return Schema(wrapped(pattern), lambda answer: _string(_field(answer)))
    if not isinstance(held.value, Mapping):
        raise ValueError(f"json_schema is {held.value!r}, and a schema must be an object here")
    schema, is_wrapped = rooted(held.value)
    if rules is not None:
        schema = adapted(schema, rules)
    return Schema(schema, _field if is_wrapped else None)


def schema_of_choices(choices: Sequence[str]) -> Schema:
    def read(answer: str) -> str:
        return _one_of(_string(_field(answer)), choices)

    return Schema(wrapped({"type": "string", "enum": list(choices)}), read)


def bare_kind(kind: type) -> Schema:
    """A value of this type that stands alone, for services whose root may be anything."""
    return Schema({"type": KINDS[kind]}, lambda answer: _READ[kind](answer.strip()))


def read_choice(choices: Sequence[str]) -> Callable[[str], str]:
    """Of an answer that is a choice itself."""
    return lambda answer: _one_of(answer, choices)


def _one_of(text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise ValueError(f"{text!r} is not one of the choices")
    return text


def _field(answer: str) -> str:
    """The JSON of the field."""
    try:
        fields = msgspec.json.decode(answer, type=dict[str, msgspec.Raw])
        return bytes(fields[FIELD]).decode()
    except (msgspec.DecodeError, KeyError):
        raise ValueError(f"{answer[:80]!r} is not an object with {FIELD!r}") from None


def _integer(found: str) -> str:
    value = json.loads(found)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_whole(value):
        raise ValueError(f"{found!r} is not an integer")
    return str(int(value))


def _is_whole(value: float) -> bool:
    return isinstance(value, int) or (math.isfinite(value) and value == int(value))


def _number(found: str) -> str:
    value = json.loads(found)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{found!r} is not a number")
    return found


def _bool(found: str) -> str:
    if found not in ("true", "false"):
        raise ValueError(f"{found!r} is neither true nor false")
    return found.capitalize()


def _quoted(found: str) -> str:
    _string(found)
    return found


def _string(found: str) -> str:
    value = json.loads(found)
    if not isinstance(value, str):
        raise ValueError(f"{found!r} is not a string")
    return value


_READ: Mapping[type, Callable[[str], str]] = {int: _integer, float: _number, bool: _bool, str: _quoted}
