"""The constraints that benches measure: each with a text that keeps to it, which a scripted model writes."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ramet.ipc.spec import Constraint, ConstraintKind, Whitespace


@dataclass(frozen=True)
class ConstrainedCase:
    name: str
    constraint: Constraint
    text: str
    is_json: bool  # one of those that a bound on time is set for


WORDS = r"[\w\d\s]{1,16}"
CHARACTER = (
    r'\{\n    "name": "' + WORDS + r'",\n'
    r'    "guild": "(Masons|Weavers|Tanners|Glaziers)",\n'
    r'    "birth place": "(Old Town|New Town|Harbour)",\n'
    r'    "occupation": "(apprentice|teacher|warden|clerk of the court|member of the council)",\n'
    r'    "tool": \{\n        "wood": "' + WORDS + r'",\n        "metal": "' + WORDS + r'",\n'
    r'        "length": [0-9]{1,2}\.[0-9]{0,2}\n    \},\n'
    r'    "alive": "(Alive|Deceased)",\n    "animal": "' + WORDS + r'",\n    "fear": "' + WORDS + r'"\n\}'
)
CHARACTER_TEXT = (
    '{\n    "name": "Anna Lindqvist",\n    "guild": "Weavers",\n    "birth place": "Harbour",\n'
    '    "occupation": "clerk of the court",\n    "tool": {\n        "wood": "beech",\n        "metal": "brass",\n'
    '        "length": 11.5\n    },\n    "alive": "Alive",\n    "animal": "grey heron",\n    "fear": "deep water"\n}'
)
BYTE = r"(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"}, "country": {"type": "string"}, "latitude": {"type": "number"},
        "population": {"type": "integer"},
        "landmarks": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5},
    },
    "required": ["name", "country", "latitude", "population", "landmarks"],
    "additionalProperties": False,
}  # fmt: skip
CITY_VALUE = {
    "name": "Edinburgh", "country": "Scotland", "latitude": 55.95, "population": 514990,
    "landmarks": ["Edinburgh Castle", "Arthur's Seat", "Royal Mile"],
}  # fmt: skip
ORDER: dict[str, Any] = {
    "$defs": {
        "address": {
            "type": "object",
            "properties": {
                "street": {"type": "string"}, "city": {"type": "string"},
                "postcode": {"type": "string", "pattern": "^[0-9]{5}$"},
            },
            "required": ["street", "city", "postcode"],
            "additionalProperties": False,
        },
        "item": {
            "type": "object",
            "properties": {
                "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
                "quantity": {"type": "integer", "minimum": 1, "maximum": 99}, "price": {"type": "number"},
            },
            "required": ["sku", "quantity", "price"],
            "additionalProperties": False,
        },
    },
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "format": "uuid"}, "ordered_on": {"type": "string", "format": "date"},
        "status": {"enum": ["pending", "shipped", "delivered"]},
        "customer": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "since": {"type": "string", "format": "date"}},
            "required": ["name", "since"],
            "additionalProperties": False,
        },
        "ship_to": {"anyOf": [{"$ref": "#/$defs/address"}, {"type": "null"}]},
        "bill_to": {"$ref": "#/$defs/address"},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1, "maxItems": 10},
        "gift": {"type": "boolean"},
    },
    "required": ["order_id", "ordered_on", "status", "customer", "ship_to", "bill_to", "items", "gift"],
    "additionalProperties": False,
}  # fmt: skip
ADDRESS = {"street": "12 Mill Lane", "city": "Leeds", "postcode": "40213"}
ORDER_VALUE = {
    "order_id": "0b6c5a3e-93d7-4f0e-8a8e-5f2f6b1f9d11", "ordered_on": "2024-03-18", "status": "shipped",
    "customer": {"name": "Jane Porter", "since": "2019-11-02"}, "ship_to": None, "bill_to": ADDRESS,
    "items": [{"sku": "ABC-1042", "quantity": 2, "price": 9.5}, {"sku": "XYZ-7001", "quantity": 1, "price": 120}],
    "gift": True,
}  # fmt: skip
MAIL: dict[
    str, Any
] = {  # a long class of characters outside of what a string may hold: dear where there is no slice for it
    "type": "object",
    "properties": {"name": {"type": "string"}, "email": {"type": "string", "format": "email"}},
    "required": ["name", "email"],
    "additionalProperties": False,
}
MAIL_VALUE = {"name": "Jane Porter", "email": "jane@example.com"}
ARITHMETIC = 'root ::= term ([-+] term)*\nterm ::= factor ([*/] factor)*\nfactor ::= [0-9]{1,6} | "(" root ")"\n'
SEPARATORS: dict[Whitespace, tuple[str, str]] = {
    "single-space": (", ", ": "), "compact": (",", ":"), "flexible": (", ", ": "),
}  # fmt: skip


def cases(whitespace: Whitespace = "single-space") -> dict[str, ConstrainedCase]:
    """By name. Those of JSON keep to this whitespace."""
    written = {"city": CITY_VALUE, "order": ORDER_VALUE, "any object": CITY_VALUE, "email": MAIL_VALUE}
    schemas = {"city": CITY, "order": ORDER, "any object": {"type": "object"}, "email": MAIL}
    made = [_schema(name, schemas[name], written[name], whitespace) for name in schemas]
    made += [
        _regex("character", CHARACTER, CHARACTER_TEXT),
        _regex("ip", rf"({BYTE}\.){{3}}{BYTE}", "192.168.17.4"),
        _regex("500 choices", "|".join(choices()), choices()[321]),
        _regex("letters", "[A-Za-z ,.]{50,400}", "The ferry leaves at noon, and it comes back in the evening. " * 3),
        ConstrainedCase("arithmetic", Constraint(ConstraintKind.EBNF, ARITHMETIC), "(12+7)*3-45/(6-2)*(8+1)", False),
    ]
    return {case.name: case for case in made}


def choices(num: int = 500, seed: int = 0) -> list[str]:
    """Names of two words and a number, of which many begin alike."""
    draw = random.Random(seed)
    first = ["north", "south", "east", "west", "upper", "lower", "old", "new", "little", "great"]
    second = ["bridge", "field", "harbour", "market", "meadow", "orchard", "river", "station", "tower", "valley"]
    made = [f"{a} {b} {number}" for a in first for b in second for number in range(10, 20)]
    return draw.sample(made, k=num)


def different_schemas(num: int) -> list[ConstrainedCase]:
    """`num` schemas that no cache takes for one another, and an object of each."""
    return [_of_fields(random.Random(seed), f"schema {seed}") for seed in range(num)]


Maker = Callable[[random.Random], tuple[dict[str, Any], Any]]  # -> schema, and a value of it
FIELDS: tuple[Maker, ...] = (
    lambda draw: ({"type": "integer", "minimum": 0, "maximum": 10_000}, draw.randrange(10_000)),
    lambda draw: ({"type": "boolean"}, draw.random() < 0.5),
    lambda draw: ({"enum": ["red", "green", "blue"]}, draw.choice(["red", "green", "blue"])),
    lambda draw: ({"type": "string", "maxLength": 20}, draw.choice(["a quiet street", "at noon", "by the river"])),
    lambda draw: ({"type": "string", "format": "date"}, f"20{draw.randint(10, 29)}-0{draw.randint(1, 9)}-15"),
)


STEMS = ["amount", "colour", "title", "place", "opened", "owner", "status", "remark", "closed", "changed"]


def _of_fields(draw: random.Random, name: str) -> ConstrainedCase:
    stems = draw.sample(STEMS, k=6)
    fields = {f"{stem}_{draw.randrange(1000)}": draw.choice(FIELDS)(draw) for stem in stems}
    schema = {
        "type": "object",
        "properties": {key: schema for key, (schema, _) in fields.items()},
        "required": list(fields),
        "additionalProperties": False,
    }
    return _schema(name, schema, {key: value for key, (_, value) in fields.items()}, "single-space")


def _schema(name: str, schema: dict[str, Any], value: object, whitespace: Whitespace) -> ConstrainedCase:
    constraint = Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema), whitespace=whitespace)
    return ConstrainedCase(name, constraint, json.dumps(value, separators=SEPARATORS[whitespace]), True)


def _regex(name: str, pattern: str, text: str) -> ConstrainedCase:
    return ConstrainedCase(name, Constraint(ConstraintKind.REGEX, pattern), text, False)
