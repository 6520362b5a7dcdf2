"""JSON schemas for services: what is adapted, what is refused, and how texts are read from answers."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from ramet.frontend.backends.forms import read_choice, schema_of, schema_of_choices
from ramet.frontend.backends.schemas import ANTHROPIC, GEMINI, OPENAI, Rules, adapted, rooted
from ramet.frontend.ir import Held
from ramet.frontend.values import wanted_schema

TEXT = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    found = {"type": "object", "properties": properties, "required": list(properties)}
    return {**found, "additionalProperties": False}


def test_an_object_is_closed_and_its_notes_are_left_out():
    given = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "City",
        "description": "A city.",
        "type": "object",
        "properties": {"title": {"type": "string", "title": "Title", "default": "x", "examples": ["a"]}},
        "required": ["title"],
    }
    assert adapted(given, OPENAI) == {"description": "A city.", **closed(title=TEXT)}
    assert given["title"] == "City", "the author's schema is not changed"
    assert "additionalProperties" not in given


@pytest.mark.parametrize(
    "where",
    [
        lambda inner: {"type": "array", "items": inner},
        lambda inner: {"anyOf": [TEXT, inner]},
        lambda inner: {"$ref": "#/$defs/a", "$defs": {"a": inner}},
        lambda inner: closed(a=inner),
    ],
)
def test_every_schema_inside_is_adapted(where: Any):
    inner = {"type": "object", "properties": {"b": TEXT}, "required": ["b"], "title": "B"}
    assert adapted(where(inner), OPENAI) == where(closed(b=TEXT))


def test_all_of_one_is_that_one():
    assert adapted({"description": "x", "allOf": [{"$ref": "#/$defs/a"}]}, OPENAI) == {
        "description": "x",
        "$ref": "#/$defs/a",
    }


@pytest.mark.parametrize(
    ("schema", "rules", "error"),
    [
        ({"type": "string", "minLength": 1}, OPENAI, "json_schema has 'minLength', which is not enforced"),
        ({"allOf": [TEXT, TEXT]}, OPENAI, "json_schema has 'allOf'"),
        ({"oneOf": [TEXT]}, OPENAI, "json_schema has 'oneOf'"),
        ({"not": TEXT, "type": "string"}, OPENAI, "json_schema has 'not'"),
        ({"type": "array", "items": {"type": "integer", "if": {}}}, OPENAI, r"json_schema\.items has 'if'"),
        ({"anyOf": [TEXT, {"type": "array", "contains": TEXT}]}, OPENAI, r"json_schema\.anyOf\[1\] has 'contains'"),
        ({"type": "array", "items": True}, OPENAI, r"json_schema\.items is True"),
        ({"type": "array", "items": {}}, OPENAI, r"json_schema\.items says nothing of what it holds"),
        ({"type": "object"}, OPENAI, "json_schema is an object without named properties"),
        ({**closed(a=TEXT), "additionalProperties": True}, OPENAI, r"additionalProperties is not false"),
        ({**closed(a=TEXT), "additionalProperties": TEXT}, ANTHROPIC, r"additionalProperties is not false"),
        ({**closed(a=TEXT), "required": []}, OPENAI, r"json_schema\.properties\.a may be absent"),
        ({"type": "integer", "maximum": 3}, ANTHROPIC, "json_schema has 'maximum'"),
        ({"type": "array", "items": TEXT, "minItems": 2}, ANTHROPIC, "minItems is 2, and at most 1 is enforced"),
        ({"type": "string", "pattern": "a"}, GEMINI, "json_schema has 'pattern'"),
    ],
)
def test_what_is_not_enforced_is_refused_by_name_and_place(schema: dict[str, Any], rules: Rules, error: str):
    with pytest.raises(ValueError, match=error):
        adapted(schema, rules)


@pytest.mark.parametrize(
    ("schema", "rules"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 3, "multipleOf": 2}, OPENAI),
        ({"type": ["string", "null"]}, OPENAI),
        ({"enum": ["a", 1, None]}, OPENAI),
        ({"const": "a"}, OPENAI),
        ({**closed(a=TEXT), "required": []}, ANTHROPIC),
        ({"type": "object"}, GEMINI),
        ({"type": "object", "additionalProperties": TEXT}, GEMINI),
        ({"type": "array", "prefixItems": [TEXT, TEXT]}, GEMINI),
        ({}, GEMINI),
    ],
)
def test_what_is_enforced_stays(schema: dict[str, Any], rules: Rules):
    assert adapted(schema, rules) == schema


def test_an_object_is_the_root():
    assert rooted(closed(a=TEXT)) == (closed(a=TEXT), False)
    assert rooted(TEXT) == (closed(value=TEXT), True)


def test_a_root_that_refers_to_an_object_is_that_object():
    shared = {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}
    root, wrapped = rooted({"$ref": "#/$defs/Node", "$defs": shared})
    assert (root, wrapped) == ({**shared["Node"], "$defs": shared}, False)


def test_what_is_shared_stays_at_the_root_of_a_wrapped_schema():
    shared = {"City": closed(name=TEXT)}
    root, wrapped = rooted({"type": "array", "items": {"$ref": "#/$defs/City"}, "$defs": shared})
    assert wrapped
    assert root == {**closed(value={"type": "array", "items": {"$ref": "#/$defs/City"}}), "$defs": shared}


def test_a_wrapped_schema_cannot_refer_to_its_own_root():
    with pytest.raises(ValueError, match="json_schema refers to its own root, which is not an object"):
        rooted({"type": "array", "items": {"$ref": "#"}})


@dataclass
class City:
    name: str
    kind: Literal["town", "village"]
    people: int | None


@pytest.mark.parametrize("kind", [City, list[City], dict[str, City]])
def test_types_of_python_are_schemas_that_services_take(kind: Any):
    held = wanted_schema(kind).held
    if kind == dict[str, City]:
        with pytest.raises(ValueError, match="an object without named properties"):
            schema_of(held, None, OPENAI)
        return
    found = schema_of(held, None, OPENAI).schema
    assert found["type"] == "object"
    assert found["$defs"]["City"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("kind", "answer", "text"),
    [
        (int, '{"value": 12}', "12"),
        (int, '{"value": 12.0}', "12"),
        (int, '{"value": 1e2}', "100"),
        (float, '{"value": 0.50}', "0.50"),
        (float, '{"value":7}', "7"),
        (bool, '{"value": false}', "False"),
        (str, '{"value": "a\\nb"}', '"a\\nb"'),
    ],
)
def test_a_value_is_read_from_its_field(kind: type, answer: str, text: str):
    read = schema_of(Held("regex", ""), kind, None).read
    assert read is not None and read(answer) == text


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (int, '{"value": 1.5}'),
        (int, '{"value": true}'),
        (int, '{"value": "1"}'),
        (float, '{"value": null}'),
        (bool, '{"value": 1}'),
        (str, '{"value": 1}'),
        (int, '{"other": 1}'),
        (int, "12"),
        (int, '{"value": 1'),
        (int, ""),
    ],
)
def test_an_answer_that_has_no_such_value_is_refused(kind: type, answer: str):
    read = schema_of(Held("regex", ""), kind, None).read
    assert read is not None
    with pytest.raises(ValueError):
        read(answer)


def test_the_text_of_a_wrapped_value_is_as_it_was_written():
    read = schema_of(Held("json_schema", {"type": "array", "items": TEXT}), None, OPENAI).read
    assert read is not None and read('{"value": [ "a",\n"b" ]}') == '[ "a",\n"b" ]'


def test_a_choice_is_one_of_them():
    read = schema_of_choices(["a", "b"]).read
    assert read is not None and read('{"value": "b"}') == "b"
    with pytest.raises(ValueError, match="'c' is not one of the choices"):
        read('{"value": "c"}')
    with pytest.raises(ValueError, match="'b ' is not one of the choices"):
        read_choice(["a", "b"])("b ")
