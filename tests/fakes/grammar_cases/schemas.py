"""Seeded JSON schemas, each made together with a shortest value that it allows.

Every keyword that a value needs is bounded, so the shortest is known by construction; optional parts may be open.
A few schemas are of TRICKY, which a backend may refuse, or keep to.
"""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from grammar_cases.case import Case
from grammar_cases.json_check import JsonCheck
from grammar_cases.scalars import Made, length, made, make_scalar
from grammar_cases.tricky import TRICKY
from ramet.ipc.spec import Constraint, ConstraintKind

NAMES = (
    "a", "b", "z", "name", "id", "zip code", "naïve", "東京", "🙂", 'a "quote"', "back\\slash", "line\nbreak", "", "\t",
    "a/b~c", "$ref", "type", "properties", "enum", "x-y", "Z", "0", "\x01", "ключ",
)  # fmt: skip
DEFINITIONS = ("node", "a/b", "t~n", "пара", "List", "x y", "100%")
NOTES = ({"title": "T"}, {"description": 'says "so"'}, {"default": None}, {"examples": [1]}, {"$comment": "c"},
         {"deprecated": True}, {"readOnly": True})  # fmt: skip
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


class SchemaMaker:
    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._draft_7 = draw.random() < 0.15
        # what some backends refuse is in some schemas only, so that each backend has many left to play
        self._multiples, self._patterned, self._counted, self._tricky = (draw.random() < 0.25 for _ in range(4))
        self._definitions: dict[str, Any] = {}
        self.hints = ['"', ", "]  # texts of values that may be needed, from inside a string on
        self._place = "definitions" if self._draft_7 else "$defs"

    def whole(self) -> Made:
        """A schema with its definitions."""
        top = self._draw.choice((self._object, self._object, self._object, self._array, self._any_of, self._reference))
        schema, shortest, types, _ = top(3) if self._draw.random() < 0.8 else self.value(2)
        if not isinstance(schema, dict):
            schema = {"allOf": [schema]}
        if self._definitions:
            schema = {**schema, self._place: self._definitions}
            if self._draft_7 and "$ref" in schema:  # its neighbours would not count
                schema = {self._place: self._definitions, "allOf": [{"$ref": schema["$ref"]}]}
        if self._draft_7:
            schema = {"$schema": DRAFT_7, **schema}
        return Made(schema, shortest, types)

    def value(self, depth: int) -> Made:
        if depth <= 0 or self._draw.random() < 0.35:
            return self._noted(self._scalar())
        makers: tuple[Callable[[int], Made], ...] = (
            self._object, self._object, self._array, self._array, self._any_of, self._one_of, self._all_of,
            self._reference, self._recursive, self._anything,
        )  # fmt: skip
        if self._tricky and not self._draft_7 and self._draw.random() < 0.4:
            schema, shortest, *hints = self._draw.choice(TRICKY)
            self._hint(shortest, *hints)
            return made(schema, shortest, "anything")
        return self._noted(self._draw.choice(makers)(depth - 1))

    def _scalar(self) -> Made:
        one = make_scalar(self._draw)
        while "multipleOf" in one.schema and not self._multiples:
            one = make_scalar(self._draw)
        self._hint(one.shortest, *one.hints)
        return one

    def _hint(self, *values: Any) -> None:
        """Texts are spelled from inside their quotes on."""
        self.hints += [json.dumps(value, ensure_ascii=False).removeprefix('"') for value in values]

    def _noted(self, one: Made) -> Made:
        if isinstance(one.schema, dict) and "$ref" not in one.schema and self._draw.random() < 0.1:
            return one._replace(schema={**one.schema, **self._draw.choice(NOTES)})
        return one

    def _anything(self, depth: int) -> Made:
        return made(self._draw.choice((True, {})), 0, "anything")

    # objects

    def _object(self, depth: int) -> Made:
        draw = self._draw
        names = draw.sample(NAMES, draw.randint(0, 4))
        properties = {name: self.value(depth) for name in names}
        required = [name for name in names if draw.random() < 0.6]
        schema: dict[str, Any] = {"type": "object"}
        if properties:
            schema["properties"] = {name: one.schema for name, one in properties.items()}
        if required:
            schema["required"] = draw.sample(required, len(required))
        shortest = {name: one.shortest for name, one in properties.items() if name in required}
        patterned = self._patterned and draw.random() < 0.4
        if patterned:
            pattern, name = draw.choice((("^x_", "x_"), ("_n$", "_n"), ("^[1-9]+$", "1")))
            schema["patternProperties"] = {pattern: self.value(0).schema}
            self.hints.append(f'{name}"')
        match draw.choice(("closed", "closed", "closed", "closed", "closed", "open", "absent", "typed")):
            case "closed":
                schema["additionalProperties"] = False
                if draw.random() < 0.1:
                    properties["never"] = made(False, None)
                    schema.setdefault("properties", {})["never"] = False
            case "open":
                schema["additionalProperties"] = True
            case "typed":
                schema["additionalProperties"] = self.value(0).schema
        if self._counted and not patterned and draw.random() < 0.5:
            self._count(schema, properties, shortest)
        shortest = {name: shortest[name] for name in [*names, *shortest] if name in shortest}
        return made(schema, shortest, "object")

    def _count(self, schema: dict[str, Any], properties: dict[str, Made], shortest: dict[str, Any]) -> None:
        """Adds bounds of the number of properties, and to `shortest` what they ask for."""
        optional = {name: one for name, one in properties.items() if name not in shortest and one.schema is not False}
        cheapest = sorted(optional, key=lambda name: length({name: optional[name].shortest}))
        low = len(shortest) + self._draw.randint(0, min(1, len(cheapest)))
        for name in cheapest[: low - len(shortest)]:
            shortest[name] = optional[name].shortest
        if self._draw.random() < 0.7:
            schema["minProperties"] = low
        if self._draw.random() < 0.7:
            schema["maxProperties"] = low + self._draw.randint(0, 2)

    # arrays

    def _array(self, depth: int) -> Made:
        draw = self._draw
        prefix = [self.value(depth) for _ in range(draw.choice((0, 0, 1, 2)))]
        rest = self.value(depth) if draw.random() < 0.7 else made(draw.choice((True, False)), 0)
        schema: dict[str, Any] = {"type": "array"}
        if prefix:
            schema["items" if self._draft_7 else "prefixItems"] = [one.schema for one in prefix]
        if rest.schema is not True or draw.random() < 0.5:
            schema["additionalItems" if self._draft_7 and prefix else "items"] = rest.schema
        low = draw.randint(0, len(prefix) if rest.schema is False else 3)
        if low or draw.random() < 0.2:
            schema["minItems"] = low
        if draw.random() < 0.8:
            schema["maxItems"] = low + draw.randint(0, 3)
        shortest = [one.shortest for one in prefix[:low]] + [rest.shortest] * (low - len(prefix))
        return made(schema, shortest, "array")

    # combinations

    def _any_of(self, depth: int) -> Made:
        options = [self.value(depth) for _ in range(self._draw.randint(1, 3))]
        shortest = min((one.shortest for one in options), key=length)
        types = frozenset[str]().union(*(one.types for one in options))
        return Made({"anyOf": [one.schema for one in options]}, shortest, types)

    def _one_of(self, depth: int) -> Made:
        """Options that exclude each other, by their type or by a tag."""
        if self._draw.random() < 0.4:
            return self._tagged(depth)
        options: list[Made] = []
        for _ in range(3):
            one = self.value(depth)
            taken = frozenset[str]().union(*(other.types for other in options))
            if not options or ("anything" not in taken | one.types and not taken & one.types):
                options.append(one)
        shortest = min((one.shortest for one in options), key=length)
        types = frozenset[str]().union(*(one.types for one in options))
        return Made({"oneOf": [one.schema for one in options]}, shortest, types)

    def _tagged(self, depth: int) -> Made:
        schemas, values = [], []
        for tag in self._draw.sample(("cat", "dog", "fish", "ü"), self._draw.randint(2, 3)):
            inside = self.value(depth)
            properties = {"kind": {"const": tag}, "of": inside.schema}
            schemas.append({"type": "object", "properties": properties, "required": ["kind", "of"],
                            "additionalProperties": False})  # fmt: skip
            values.append({"kind": tag, "of": inside.shortest})
        return made({"oneOf": schemas}, min(values, key=length), "object")

    def _all_of(self, depth: int) -> Made:
        """One schema, its keywords in several: those that read each other stay together."""
        one = self._scalar() if self._draw.random() < 0.6 else self._merged(depth)
        if not isinstance(one.schema, dict) or set(one.schema) & {"$ref", "enum", "const"}:
            return one._replace(schema={"allOf": [one.schema]})
        first = {key: value for key, value in one.schema.items() if self._draw.random() < 0.5 or key == "type"}
        second = {key: value for key, value in one.schema.items() if key not in first}
        if "allOf" in one.schema:
            return one
        if self._draw.random() < 0.5:
            return one._replace(schema={**second, "allOf": [first]})
        return one._replace(schema={"allOf": [first, second]})

    def _merged(self, depth: int) -> Made:
        """Two objects, as in a class and its base."""
        names = self._draw.sample(NAMES, 3)
        parts = [self.value(depth) for _ in names]
        base = {"type": "object", "properties": {names[0]: parts[0].schema}, "required": [names[0]]}
        more = {"properties": {name: one.schema for name, one in zip(names[1:], parts[1:])}, "required": [names[1]]}
        shortest = {name: one.shortest for name, one in zip(names[:2], parts)}
        return made({"allOf": [base, more]}, shortest, "object")

    # references

    def _define(self, schema: Any) -> dict[str, Any]:
        name = self._draw.choice([name for name in DEFINITIONS if name not in self._definitions] or [""])
        if not name:
            name = f"more{len(self._definitions)}"
        self._definitions[name] = schema
        return self._to(name)

    def _to(self, name: str) -> dict[str, Any]:
        escaped = name.replace("~", "~0").replace("/", "~1").replace("%", "%25").replace(" ", "%20")
        return {"$ref": f"#/{self._place}/{escaped}"}

    def _reference(self, depth: int) -> Made:
        one = self.value(depth)
        reference = self._define(one.schema)
        if not self._draft_7 and self._draw.random() < 0.15:
            reference |= self._draw.choice(NOTES)
        return one._replace(schema=reference)

    def _recursive(self, depth: int) -> Made:
        """A definition that needs itself only where it may also stop."""
        name = f"more{len(self._definitions)}"
        self._definitions[name] = None
        again, inside = self._to(name), self._scalar()
        closed = {"additionalProperties": False}
        match self._draw.choice(("list", "tree", "nested", "mutual")):
            case "list":
                following = {"anyOf": [{"type": "null"}, again]}
                properties = {"value": inside.schema, "next": following}
                schema = {"type": "object", "properties": properties, "required": ["value", "next"], **closed}
                shortest: Any = {"value": inside.shortest, "next": None}
            case "tree":
                properties = {"of": inside.schema, "children": {"type": "array", "items": again, "maxItems": 2}}
                schema = {"type": "object", "properties": properties, "required": ["of"], **closed}
                shortest = {"of": inside.shortest}
            case "nested":
                schema = {"anyOf": [{"type": "array", "items": again, "maxItems": 2}, {"type": "integer"}]}
                shortest = []
            case _:
                other = {"type": "object", "properties": {"of": inside.schema, "back": again}, "required": ["of"]}
                schema = {"type": "array", "items": self._define({**other, **closed}), "maxItems": 2}
                shortest = []
        self._definitions[name] = schema
        return made(again, shortest, *(("anything",) if isinstance(shortest, list) else ("object",)))


def schema_cases(seed: int, count: int) -> Iterator[Case]:
    for number in range(count):
        draw = Random(f"schema {seed} {number}")
        maker = SchemaMaker(draw)
        one = maker.whole()
        whitespace = draw.choice(("single-space",) * 6 + ("compact", "flexible"))
        yield schema_case(f"schema {seed}/{number}", one, whitespace, tuple(maker.hints))


def tricky_cases(count: int) -> Iterator[Case]:
    """Each of TRICKY so many times."""
    for number, (schema, shortest, *hints) in enumerate(TRICKY):
        ends = tuple(json.dumps(text, ensure_ascii=False).removeprefix('"') for text in (shortest, *hints, ""))
        for _ in range(count):
            yield schema_case(f"tricky {number}", made(schema, shortest), hints=ends)


def schema_case(name: str, one: Made, whitespace: str = "single-space", hints: tuple[str, ...] = ()) -> Case:
    text = json.dumps(one.schema, ensure_ascii=False)
    separators = (",", ":") if whitespace == "compact" else (", ", ": ")
    shortest = json.dumps(one.shortest, ensure_ascii=False, separators=separators)
    constraint = Constraint(ConstraintKind.JSON_SCHEMA, text, whitespace=whitespace)
    return Case(name, constraint, shortest, JsonCheck(text, whitespace).fault, hints=hints)
