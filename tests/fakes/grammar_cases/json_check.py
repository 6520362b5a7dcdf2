"""What is wrong with a JSON text that should keep to a schema: `jsonschema`'s answer, with exact numbers.

Also what a schema does not say: white space as asked for, properties in the schema's order, only numbers and
characters that JSON has.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker, ValidationError, validators
from jsonschema_specifications import REGISTRY

from grammar_cases import formats

DRAFT_7 = "http://json-schema.org/draft-07/schema"
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
SPACING = {  # outside of strings
    "single-space": re.compile(r"(?:[^\s,:]|, (?=\S)|: (?=\S))*"),
    "compact": re.compile(r"\S*"),
    "flexible": re.compile(r"[\s\S]*"),
}


class JsonCheck:
    """`schema`: a text, its properties in the order that outputs should have."""

    def __init__(self, schema: str, whitespace: str = "single-space") -> None:
        parsed = as_python_patterns(read(schema))
        draft_7 = isinstance(parsed, dict) and str(parsed.get("$schema", "")).startswith(DRAFT_7)
        plain, ordered = _DRAFT_7 if draft_7 else _DRAFT_2020
        self._validator = plain(parsed, format_checker=_FORMATS, registry=REGISTRY)
        self._ordered = ordered(parsed, format_checker=_FORMATS, registry=REGISTRY)
        self._spacing = SPACING[whitespace]

    def fault(self, text: str) -> str | None:
        try:
            last, first = read(text), read(text, first_wins=True)
        except ValueError as error:
            return f"no JSON: {error}"
        if not self._spacing.fullmatch(STRING.sub('""', text)):
            return "white space is not as asked for"
        for value in (last,) if first == last else (last, first):
            if (error := next(self._validator.iter_errors(value), None)) is not None:
                return f"invalid: {error.message} at {list(error.path)}"
        if (error := next(self._ordered.iter_errors(last), None)) is not None:
            return f"properties are out of order: {error.message}"
        return None


def read(text: str, first_wins: bool = False) -> Any:
    """Strict JSON with exact numbers. A key that comes twice has its last value, or its first."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(pairs[::-1]) if first_wins else dict(pairs)

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not a JSON number")

    text.encode()  # ValueError for half a surrogate pair, which no UTF-8 has
    return json.loads(text, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=members)


def as_python_patterns(schema: Any) -> Any:
    """`schema` with the patterns of JSON Schema (ECMA 262) as Python's `re` reads them, wherever one may stand."""
    if isinstance(schema, list):
        return [as_python_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {}
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str):
            changed[key] = python_pattern(value)
        elif key == "patternProperties" and isinstance(value, dict):
            changed[key] = {python_pattern(pattern): as_python_patterns(item) for pattern, item in value.items()}
        elif key in ("enum", "const", "default", "examples"):
            changed[key] = value
        else:
            changed[key] = as_python_patterns(value)
    return changed


_SPACE = r"\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_OUTSIDE = {
    "$": r"\Z", "\\d": "[0-9]", "\\D": "[^0-9]", "\\w": "[A-Za-z0-9_]", "\\W": "[^A-Za-z0-9_]",
    "\\s": f"[{_SPACE}]", "\\S": f"[^{_SPACE}]", ".": r"[^\n\r\u2028\u2029]", "\\/": "/", "\\-": r"\-",
}  # fmt: skip
_INSIDE = {"\\d": "0-9", "\\w": "A-Za-z0-9_", "\\s": _SPACE, "[": r"\["}
_PIECE = re.compile(r"\\c[A-Za-z]|\\[pP]\{[^}]*\}|\\.|[\s\S]")


def python_pattern(pattern: str) -> str:
    written, inside = [], False
    for piece in _PIECE.findall(pattern):
        table = _INSIDE if inside else _OUTSIDE
        if piece.startswith("\\c"):
            written.append(re.escape(chr(ord(piece[2]) % 32)))
        else:
            written.append(table.get(piece, piece))
        if piece == "[" and not inside:
            inside = True
        elif piece == "]":
            inside = False
    return "".join(written)


def _in_order(validator: Any, properties: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    yield from Draft202012Validator.VALIDATORS["properties"](validator, properties, instance, schema)
    if isinstance(instance, dict):
        found = [key for key in instance if key in properties]
        if found != [key for key in properties if key in instance]:
            yield ValidationError(f"{found} are not in the order of {list(properties)}")


def _multiple_of(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "number") or instance == 0:
        return
    _, digits, exponent = Decimal(instance).as_tuple()
    assert isinstance(exponent, int)
    # whether digits 10^exponent / step is whole; an output may have an exponent that no power should be taken of
    numerator, denominator = Fraction(step).as_integer_ratio()
    whole = int("".join(map(str, digits))) * denominator
    if exponent >= 0:
        multiple = whole * pow(10, exponent, numerator) % numerator == 0
    else:
        multiple = -exponent <= len(str(whole)) and whole % (numerator * 10**-exponent) == 0
    if not multiple:
        yield ValidationError(f"{instance} is not a multiple of {step}")


def _is_integer(checker: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: Any, value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _with_exact_numbers(validator: Any) -> tuple[Any, Any]:
    """A class of validators, and one that also looks at the order of properties."""
    types = validator.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
    plain = validators.extend(validator, {"multipleOf": _multiple_of}, type_checker=types)
    return plain, validators.extend(plain, {"properties": _in_order})


_DRAFT_7, _DRAFT_2020 = _with_exact_numbers(Draft7Validator), _with_exact_numbers(Draft202012Validator)
_FORMATS = FormatChecker(formats=())
for _name, _check in formats.CHECKS.items():
    _FORMATS.checks(_name)(lambda value, check=_check: not isinstance(value, str) or check(value))
