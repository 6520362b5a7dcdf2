"""A JSON schema as the rules of a grammar, for backends whose own reading of schemas drops or bends keywords.

`anyOf`, `allOf` and references beside other keywords are first multiplied out into schemas without them.
"""

import math
from decimal import Decimal
from typing import Any

from ramet.runtime.grammar import json_strings, number_ranges, regex
from ramet.runtime.grammar.base import BackendName, GrammarError, Whitespace
from ramet.runtime.grammar.charsets import UNIVERSE
from ramet.runtime.grammar.formats import FORMATS
from ramet.runtime.grammar.instances import holds
from ramet.runtime.grammar.json_layout import JsonLayout
from ramet.runtime.grammar.json_schema import Schema, SchemaDocument, format_pattern, read_value
from ramet.runtime.grammar.merging import Merger
from ramet.runtime.grammar.number_ranges import Bound
from ramet.runtime.grammar.one_of import ALL_TYPES
from ramet.runtime.grammar.pattern_rules import MAX_STATES, add_pattern, check_size
from ramet.runtime.grammar.tree import (
    EMPTY,
    Chars,
    Node,
    Ref,
    Repeat,
    Rules,
    Seq,
    either,
    lengths,
    literal,
    renamed,
)

COMMON = ("$defs", "definitions")
TYPES = ("null", "boolean", "number", "string", "array", "object")
assert {*TYPES} == ALL_TYPES


class Impossible(Exception):
    """Nothing is valid here."""


class JsonRules:
    """Makes the rules of one schema.

    Without recursion there is no value of any kind, and an object has only the properties that its schema names.
    """

    def __init__(self, document: SchemaDocument, whitespace: Whitespace, recursive: bool = True) -> None:
        self.document, self.recursive = document, recursive
        self.merger = Merger(document)
        self.layout = JsonLayout(whitespace)
        self.names: dict[str, str] = {}  # of the rules of referenced schemas

    def make(self) -> Rules:
        try:
            self.layout.rules["root"] = self.value(self.document.root, "#")
        except Impossible as error:
            raise GrammarError("is a schema that nothing is valid for") from error
        return self.layout.rules

    def value(self, schema: Schema, place: str) -> Node:
        """Raises Impossible."""
        if schema is False:
            raise Impossible
        if schema is True or not {*schema} - {*COMMON}:
            return self.anything(place)
        keywords = {*schema} - {*COMMON}
        if keywords == {"$ref"}:
            return self.referenced(schema["$ref"])
        if keywords == {"anyOf"}:
            return self.any_of([(part, f"{place}/anyOf/{i}") for i, part in enumerate(schema["anyOf"])])
        if keywords & {"$ref", "anyOf", "allOf"}:
            return self.any_of([(part, place) for part in self.merger.alternatives(schema, place)])
        return self.plain(schema, place)

    def any_of(self, options: list[tuple[Schema, str]]) -> Node:
        found = []
        for schema, place in options:
            try:
                found.append(self.value(schema, place))
            except Impossible:
                continue
        if not found:
            raise Impossible
        return either(*found)

    def referenced(self, ref: str) -> Node:
        if ref not in self.names:
            name = self.names[ref] = self.layout.fresh("ref")
            self.layout.rules[name] = EMPTY  # what it refers to may refer back
            self.layout.rules[name] = self.value(self.document.targets[ref], ref)
        return Ref(self.names[ref])

    def anything(self, place: str) -> Node:
        if not self.recursive:
            raise GrammarError(
                f"{place} allows any value, which {self.document.backend} cannot enforce: give it a type"
            )
        if "json" not in self.layout.rules:
            self.layout.rules["json"] = EMPTY
            self.layout.rules["json"] = either(*(self.of_type(name, {}, "#") for name in TYPES))
        return Ref("json")

    def plain(self, schema: dict[str, Any], place: str) -> Node:
        """A schema without references and alternatives."""
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            kept = [v for v in values if holds(schema, v, self.document.targets)]
            if not kept:
                raise Impossible
            return either(*map(self.layout.constant, kept))
        if "type" not in schema and not self.recursive:
            raise GrammarError(f"{place} has no type, which {self.document.backend} needs")
        names = schema.get("type", TYPES)
        names = [names] if isinstance(names, str) else names
        found = []
        for name in names:
            if name == "integer" and "number" in names:
                continue
            try:
                found.append(self.of_type(name, schema, place))
            except Impossible:
                continue
        if not found:
            raise Impossible
        return either(*found)

    def of_type(self, name: str, schema: dict[str, Any], place: str) -> Node:
        match name:
            case "null":
                return literal("null")
            case "boolean":
                return either(literal("true"), literal("false"))
            case "integer" | "number":
                return number(schema, name == "integer")
            case "string":
                return self.string(schema, place)
            case "array":
                return self.array(schema, place)
            case _:
                return self.object(schema, place)

    def string(self, schema: dict[str, Any], place: str) -> Node:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if most is not None and least > most:
            raise Impossible
        if "pattern" not in schema:
            if least == 0 and most is None:
                return json_strings.STRING
            keyword = "minLength" if most is None else "maxLength"
            if self.recursive and schema[keyword] >= MAX_STATES:
                fact = f"{self.document.backend} enforces at most {MAX_STATES - 1}"
                raise GrammarError(f"{place}/{keyword} is {schema[keyword]}, {fact}")
            return self.pattern(Repeat(Chars(UNIVERSE), least, most), f"{place}/{keyword}")
        node = regex.whole(schema["pattern"])
        shortest, longest = lengths(node) or (0, None)
        if shortest < least or (most is not None and (longest is None or longest > most)):
            keyword = "minLength" if shortest < least else "maxLength"
            raise GrammarError(
                f"{place}/{keyword}: {self.document.backend} does not enforce it beside a pattern or format",
                hint="write the length into the pattern",
            )
        is_format = schema["pattern"] in map(format_pattern, FORMATS)
        return self.pattern(node, f"{place}/pattern", trusted=is_format)

    def pattern(self, node: Node, place: str, trusted: bool = False) -> Node:
        """A string that matches. `trusted`: it has few ways to be read."""
        try:
            if not self.recursive:  # and so without rules
                check_size(node)
                return json_strings.string(node)
            content = add_pattern(node, self.layout.rules, json_strings.quoted, trusted)
        except GrammarError as error:
            raise GrammarError(f"{place} {error.fact}", error.hint) from error
        return Seq((json_strings.QUOTE, content, json_strings.QUOTE))

    def array(self, schema: dict[str, Any], place: str) -> Node:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        first: list[Node] = []
        for i, inner in enumerate(schema.get("prefixItems", [])[:most]):
            try:
                first.append(self.value(inner, f"{place}/prefixItems/{i}"))
            except Impossible:
                most = i
                break
        further: Node | None = None
        if most is None or most > len(first):
            try:
                further = self.value(schema.get("items", True), f"{place}/items")
            except Impossible:
                most = len(first)
        if most is not None and least > most:
            raise Impossible
        return self.layout.enclosed_items(first, further, least, most)

    def object(self, schema: dict[str, Any], place: str) -> Node:
        named = dict(schema.get("properties", {}))
        required = [*schema.get("required", ())]
        patterns = schema.get("patternProperties", {})
        if patterns:
            return self.map_by_pattern(schema, named, place)
        for name in required:
            named.setdefault(name, schema.get("additionalProperties", True))
        others = schema.get("additionalProperties", self.recursive)
        members: list[tuple[Node, bool]] = []
        for name, inner in named.items():
            try:
                value = self.value(inner, f"{place}/properties/{name}")
            except Impossible:
                if name in required:
                    raise
                continue
            members.append((Seq((json_strings.constant(name), self.layout.colon, value)), name in required))
        further: Node | None = None
        try:
            value = self.value(others, f"{place}/additionalProperties")
            further = Seq((json_strings.other_than(named), self.layout.colon, value))
        except Impossible:
            further = None
        return self.counted(schema, members, further, place)

    def map_by_pattern(self, schema: dict[str, Any], named: dict[str, Any], place: str) -> Node:
        patterns = schema["patternProperties"]
        alone = len(patterns) == 1 and not named and not schema.get("required")
        if not alone or schema.get("additionalProperties", True) is not False:
            raise GrammarError(
                f"{place}/patternProperties: {self.document.backend} enforces only one pattern, with "
                "additionalProperties false and without properties and required"
            )
        ((pattern, inner),) = patterns.items()
        further: Node | None = None
        try:
            value = self.value(inner, f"{place}/patternProperties/{pattern}")
            name = self.pattern(regex.whole(pattern), f"{place}/patternProperties")
            further = Seq((name, self.layout.colon, value))
        except Impossible:
            further = None
        return self.counted(schema, [], further, place)

    def counted(
        self, schema: dict[str, Any], members: list[tuple[Node, bool]], further: Node | None, place: str
    ) -> Node:
        """The object of these members, with as many of them as are asked for."""
        least, most = schema.get("minProperties", 0), schema.get("maxProperties")
        num_required = sum(needed for _, needed in members)
        if not members:
            if further is None:
                most = 0
            if most is not None and least > most:
                raise Impossible
            return self.layout.repeated(further or EMPTY, least, most, "{}")
        if most is not None and num_required > most:
            raise Impossible
        if num_required == len(members):
            tail: Node = EMPTY
            if further is not None:
                left = None if most is None else most - num_required
                tail = Repeat(Seq((self.layout.comma, further)), max(0, least - num_required), left)
            elif least > num_required:
                raise Impossible
            return self.layout.enclosed("{", Seq((self.layout.joined([member for member, _ in members]), tail)), "}")
        too_few = least > max(1, num_required)
        if too_few or (most is not None and (further is not None or most < len(members))):
            keyword = "minProperties" if too_few else "maxProperties"
            raise GrammarError(
                f"{place}/{keyword}: {self.document.backend} enforces it only where all properties are required"
            )
        return self.layout.ordered(members, further, may_be_empty=least == 0)


def number(schema: dict[str, Any], integer: bool) -> Node:
    low = max(bounds_of(schema, "minimum", "exclusiveMinimum"), key=lambda b: (b.value, b.strict), default=None)
    high = min(bounds_of(schema, "maximum", "exclusiveMaximum"), key=lambda b: (b.value, not b.strict), default=None)
    if not integer:
        node = number_ranges.numbers(low, high)
    else:
        least = None if low is None else math.ceil(low.value) + (low.strict and low.value % 1 == 0)
        most = None if high is None else math.floor(high.value) - (high.strict and high.value % 1 == 0)
        node = number_ranges.integers(least, most)
    if node is None:
        raise Impossible
    return node


def bounds_of(schema: dict[str, Any], closed: str, open_: str) -> list[Bound]:
    found = [Bound(Decimal(str(schema[closed])), False)] if closed in schema else []
    return found + ([Bound(Decimal(str(schema[open_])), True)] if open_ in schema else [])


def add_schema(backend: BackendName, whitespace: Whitespace, recursive: bool, schema: Any, rules: Rules) -> Node:
    """Adds the rules of a schema to those of a grammar that it is a part of."""
    document = read_value(schema, backend)
    prefix = f"j{len(rules)}-"
    rules |= renamed(JsonRules(document, whitespace, recursive).make(), prefix)
    return Ref(f"{prefix}root")
