"""The arguments of a call in Python, city="Rome", n=2, as a pattern: a part of what their JSON schema allows.

Decides what of a schema can be said: types, properties, enum, const, items, anyOf and references that do not lead back
to themselves. Any other keyword is refused by name, because the values are read with Python's rules, not with JSON's.
Properties come in the schema's order, and none that it does not name. A list or an object without a schema of its own
nests two levels; a literal of more than 16,384 characters of code is read as its text (pythonic.py).
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ramet.ipc.params import shown
from ramet.runtime.exact_json import read_members
from ramet.runtime.intake.parsers.structure import exactly
from ramet.runtime.intake.parsers.tools import Offer, Unwritable

STRING = r'"(?:[^"\\\x00-\x1f\x7f]|\\["\\nrt])*"'
INTEGER = r"-?(?:0|[1-9][0-9]{0,14})"  # as many digits as a double keeps
NUMBER = INTEGER + r"(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?"
TYPES = {"string": STRING, "integer": INTEGER, "number": NUMBER, "boolean": "(?:True|False)", "null": "None"}
OF_TYPES: dict[str, frozenset[str]] = {
    **dict.fromkeys(TYPES, frozenset[str]()),
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items"}),
}
OF_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "object": (dict,), "array": (list,),
}  # fmt: skip
ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment",
    "$defs", "definitions",
})  # fmt: skip
MAX_WRITTEN = 1 << 18  # characters of all patterns: a definition is written out wherever it is named

Key = Callable[[str], str]  # the pattern of a property's name and of what stands behind it


def patterns_of(offers: list[Offer]) -> list[str]:
    """Of everything between the parentheses of each call; "" where there is nothing. Raises Unwritable."""
    patterns = list[str]()
    for offer in offers:
        try:
            patterns.append(_ArgumentWriter(offer).arguments())
        except RecursionError:
            raise Unwritable("schema follows too many references inside one another", offer.name) from None
        if sum(map(len, patterns)) > MAX_WRITTEN:
            raise Unwritable(
                f"schema, with those before it, comes to patterns of more than {MAX_WRITTEN} characters", offer.name
            )
    return patterns


class _ArgumentWriter:
    def __init__(self, offer: Offer) -> None:
        self._root, self._name = read_members(offer.schema), offer.name
        self._inside: list[str] = []  # the references that are being followed
        self._written = 0

    def arguments(self) -> str:
        self._check(self._root, "", {"type", *OF_TYPES["object"]})
        for name in self._properties(self._root, ""):
            if not name.isidentifier():
                raise self._cannot(".properties", f"has {shown(name)}, which is not a name in Python")
        return self._members(self._root, "", lambda key: f"{key}=")

    def _value(self, schema: Any, where: str) -> str:
        """Of one value. `where`: the path to its schema."""
        if schema is True:
            schema = {}
        if not isinstance(schema, dict):
            raise self._cannot(where, "is a schema that allows nothing")
        pattern = self._one(schema, where)
        self._written += len(pattern)
        if self._written > MAX_WRITTEN:
            raise self._cannot(where, f"comes to patterns of more than {MAX_WRITTEN} characters")
        return pattern

    def _one(self, schema: dict[str, Any], where: str) -> str:
        kinds = self._kinds(schema, where)
        if "$ref" in schema:
            self._check(schema, where, {"$ref"})
            return self._reference(schema["$ref"], f"{where}.$ref")
        if "anyOf" in schema:
            self._check(schema, where, {"anyOf"})
            return self._any(schema["anyOf"], f"{where}.anyOf")
        for name in ("enum", "const"):
            if name in schema:
                self._check(schema, where, {name, "type"})
                return self._constants(schema[name] if name == "enum" else [schema[name]], kinds, f"{where}.{name}")
        if not any(name in schema for name in ("type", *OF_TYPES["object"], *OF_TYPES["array"])):
            self._check(schema, where, set())
            return _anything(2)
        self._check(schema, where, {"type"}.union(*(OF_TYPES[kind] for kind in kinds)))
        return _one_of([self._of_type(kind, schema, where) for kind in kinds])

    def _kinds(self, schema: dict[str, Any], where: str) -> list[str]:
        given = schema.get("type", [*OF_TYPES])
        kinds = given if isinstance(given, list) and given else [given]
        for kind in kinds:
            if not isinstance(kind, str) or kind not in OF_TYPES:
                raise self._cannot(f"{where}.type", f"is {shown(kind)}")
        return kinds

    def _of_type(self, kind: str, schema: dict[str, Any], where: str) -> str:
        match kind:
            case "array":
                item = self._value(schema.get("items", True), f"{where}.items")
                return rf"\[(?:{item}(?:, {item})*)?\]"
            case "object" if schema.get("properties") or schema.get("additionalProperties") is False:
                return rf"\{{{self._members(schema, where, lambda key: exactly(repr(key)) + ': ')}\}}"
            case "object":
                if schema.get("required"):
                    raise self._cannot(f"{where}.required", "is set without properties")
                value = self._value(schema.get("additionalProperties", True), f"{where}.additionalProperties")
                return rf"\{{(?:{STRING}: {value}(?:, {STRING}: {value})*)?\}}"
        return TYPES[kind]

    def _properties(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            raise self._cannot(f"{where}.properties", "is not an object")
        return properties

    def _members(self, schema: dict[str, Any], where: str, key: Key) -> str:
        """The properties with their keys, separated by commas: those that are not required may be left out."""
        properties, required = self._properties(schema, where), schema.get("required", [])
        if not isinstance(required, list):
            raise self._cannot(f"{where}.required", "is not a list")
        for name in required:
            if not isinstance(name, str) or name not in properties:
                raise self._cannot(f"{where}.required", f"names {shown(name)}, which is not a property")
        each = [key(name) + self._value(one, f"{where}.properties.{name}") for name, one in properties.items()]
        all_needed = frozenset(required)
        needed = [name in all_needed for name in properties]
        if True in needed:
            first = needed.index(True)
            before = "".join(f"(?:{one}, )?" for one in each[:first])
            after = zip(each[first + 1 :], needed[first + 1 :])
            return before + each[first] + "".join(f", {one}" if need else f"(?:, {one})?" for one, need in after)
        if sum(map(len, each)) * len(each) > MAX_WRITTEN:
            raise self._cannot(f"{where}.properties", "are too many to be all left out")
        return _optional(each)

    def _reference(self, path: Any, where: str) -> str:
        found: Any = self._root if isinstance(path, str) and path.startswith("#/") else None
        for step in str(path).split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if found is None:
            raise self._cannot(where, f"is {path!r:.80}, which leads nowhere")
        if path in self._inside:
            raise self._cannot(where, f"is {path!r:.80}, which leads to itself")
        self._inside.append(path)
        pattern = self._value(found, where)
        self._inside.pop()
        return pattern

    def _constants(self, values: Any, kinds: list[str], where: str) -> str:
        types = [kind for name in kinds for kind in OF_PYTHON[name]]
        rounded = (
            next((each for each in values if isinstance(each, Decimal)), None) if isinstance(values, list) else None
        )
        if rounded is not None:
            raise self._cannot(where, f"has the number {rounded!s:.60}, which a double rounds")
        fitting = [value for value in values if type(value) in types] if isinstance(values, list) else []
        if not fitting:
            raise self._cannot(where, "has no value of the type")
        return _one_of([exactly(repr(value)) for value in fitting])

    def _any(self, schemas: Any, where: str) -> str:
        if not isinstance(schemas, list) or not schemas:
            raise self._cannot(where, "is not a list of schemas")
        return _one_of([self._value(one, f"{where}[{i}]") for i, one in enumerate(schemas)])

    def _check(self, schema: dict[str, Any], where: str, read: set[str]) -> None:
        unknown = next((name for name in schema if name not in read and name not in ANNOTATIONS), None)
        if unknown is not None:
            raise self._cannot(f"{where}.{unknown}", "is set")

    def _cannot(self, where: str, fact: str) -> Unwritable:
        shown = where.removeprefix(".") or "schema"
        return Unwritable(f"{shown:.200} {fact}: calls that are written in Python cannot be held to it", self._name)


def _optional(each: list[str]) -> str:
    """Any of these in their order, with commas between them."""
    if not each:
        return ""
    rest = ["".join(f"(?:, {one})?" for one in each[i + 1 :]) for i in range(len(each))]
    return f"(?:{'|'.join(one + more for one, more in zip(each, rest))})?"


def _one_of(patterns: list[str]) -> str:
    distinct = list(dict.fromkeys(patterns))
    return distinct[0] if len(distinct) == 1 else f"(?:{'|'.join(distinct)})"


def _anything(levels: int) -> str:
    """Any value that nests so many levels at most."""
    kinds = list(TYPES.values())
    if levels:
        value = _anything(levels - 1)
        kinds += [rf"\[(?:{value}(?:, {value})*)?\]", rf"\{{(?:{STRING}: {value}(?:, {STRING}: {value})*)?\}}"]
    return _one_of(kinds)
