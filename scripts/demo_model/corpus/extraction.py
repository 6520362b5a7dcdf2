"""Extraction into JSON: a text about a record, a request that states the fields, and the object.

Decides which fields are asked, under which names, and how the request states them: in words, typed, as a JSON schema.
"""

import json
from typing import NamedTuple

from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.grammar import joined, with_article
from scripts.demo_model.corpus.passage_words import CHOICES, NAME_KEYS, WORDINGS
from scripts.demo_model.corpus.people import Record, record
from scripts.demo_model.corpus.telling import ATTRIBUTES, about, all_keys, distinct_records


class JsonTask(NamedTuple):
    """An extraction: the whole request, how the answer is written, and the object that it is."""

    prompt: str
    answer: str
    expected: dict[str, object]
    keys: tuple[str, ...]


_PYTHON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list[str]"}
_PLAIN_TYPES = {"array": "array of strings"}


class Field(NamedTuple):
    """One asked field: its JSON name, its type, and the value that the text gives it (None where it does not say)."""

    name: str
    type: str
    value: object


def _schema(fields: list[Field]) -> dict[str, object]:
    return {
        one.name: {"type": "array", "items": {"type": "string"}} if one.type == "array" else {"type": one.type}
        for one in fields
    }


def _plain_type(one: Field) -> str:
    return _PLAIN_TYPES.get(one.type, one.type)


def _state_names(draw: Draw, fields: list[Field]) -> str:
    names = joined([one.name for one in fields])
    return draw.pick(
        (
            f"Extract {names} as JSON.",
            f"Extract {names} from the text as JSON.",
            f"Give {names} as JSON.",
            f"Write {names} as a JSON object.",
            f"Return a JSON object with {names}.",
            f"Answer in JSON with the keys {names}.",
            f"Give a JSON object with these fields: {', '.join(one.name for one in fields)}.",
            f"Turn the text into JSON. Fields: {', '.join(one.name for one in fields)}.",
            f"I need {names} in JSON format.",
        )
    )


def _state_typed(draw: Draw, fields: list[Field]) -> str:
    quoted = joined([f'"{one.name}" ({_plain_type(one)})' for one in fields])
    lead = draw.pick(
        (
            "Return JSON with the keys",
            "Answer in JSON with the keys",
            "Reply with a JSON object that has",
            "Give JSON with",
        )
    )
    return f"{lead} {quoted}."


def _state_lines(draw: Draw, fields: list[Field]) -> str:
    lead = draw.pick(("Extract these fields as JSON:", "Return JSON with these fields:", "Fields of the JSON answer:"))
    lines = [
        f"\n- {one.name}: {_plain_type(one)}" if lead[0] != "E" else f"\n- {one.name} ({_plain_type(one)})"
        for one in fields
    ]
    return lead + "".join(lines)


def _state_schema(draw: Draw, fields: list[Field]) -> str:
    schema: dict[str, object] = {"type": "object", "properties": _schema(fields)}
    if draw.chance(0.5):
        schema["required"] = [one.name for one in fields]
    lead = draw.pick(
        ("Answer with JSON that fits this schema: ", "Schema: ", "JSON schema:\n", "Use this JSON schema: ")
    )
    return lead + json.dumps(schema)


def _state_code(draw: Draw, fields: list[Field]) -> str:
    body = ", ".join(f"{one.name}: {_PYTHON_TYPES[one.type]}" for one in fields)
    return draw.pick(("Fields as JSON: ", "Answer in JSON with the fields ", "JSON fields: ")) + body


def _state_form(draw: Draw, fields: list[Field]) -> str:
    body = ", ".join(f'"{one.name}": {_plain_type(one)}' for one in fields)
    return draw.pick(("Fill in this JSON form: ", "Use this form: ", "Answer in this format: ")) + "{" + body + "}"


_STATEMENTS = (
    _state_names,
    _state_names,
    _state_typed,
    _state_typed,
    _state_lines,
    _state_schema,
    _state_schema,
    _state_code,
    _state_form,
)
_NULL_HINTS = (
    "Use null for what the text does not say.",
    "If something is not said, use null.",
    "Missing values are null.",
    "Write null where the text says nothing.",
)


def _field(draw: Draw, subject: Record, attribute: str, told: bool, used: list[str]) -> Field:
    wording = WORDINGS[subject.kind].get(attribute)
    names = wording.names if wording else CHOICES[subject.kind][attribute].names
    free = [name for name in names if name not in used] or [attribute]
    return Field(
        draw.pick(free), wording.type if wording else "boolean", subject.values[attribute].plain if told else None
    )


def _fields(draw: Draw, subject: Record, told: list[str], missing: list[str]) -> list[Field]:
    """Fields in the order in which the request names them."""
    used: list[str] = []
    fields = []
    if draw.chance(0.8):
        fields.append(Field(draw.pick(NAME_KEYS[subject.kind]), "string", subject.name))
        used.append(fields[0].name)
    for attribute in told + missing:
        fields.append(_field(draw, subject, attribute, attribute in told, used))
        used.append(fields[-1].name)
    if draw.chance(0.4):
        draw.random.shuffle(fields)
    return fields


def _join_request(draw: Draw, text: str, statement: str) -> str:
    form = draw.number(0, 5)
    match form:
        case 0:
            return f"Text: {text}\n{statement}"
        case 1:
            return f"{statement}\nText: {text}"
        case 2:
            return f"{text}\n\n{statement}"
        case 3:
            return f"{statement}\n\n{text}"
        case 4:
            return f"Text: {text}\n\n{statement}"
        case _:
            return f"Read this text: {text}\n{statement}"


def record_fields(draw: Draw) -> tuple[str, list[Field], tuple[str, ...]]:
    """A text about a record, fields that it fills, and its keys."""
    subject = record(draw)
    told = draw.sample(ATTRIBUTES[subject.kind], draw.number(2, 4))
    fields = _fields(draw, subject, told[: draw.number(1, 3)], [])
    return about(draw, subject, told), fields, subject.keys


def json_task(draw: Draw) -> JsonTask:
    """A record told in a text, and some of its attributes asked as JSON."""
    subject = record(draw)
    attributes = draw.sample(ATTRIBUTES[subject.kind], draw.number(2, 6))
    num_asked = draw.number(1, len(attributes))
    num_missing = 1 if draw.chance(0.15) and len(attributes) > num_asked else 0
    asked, untold = attributes[:num_asked], attributes[num_asked : num_asked + num_missing]
    told = asked + attributes[num_asked + num_missing :]
    draw.random.shuffle(told)
    fields = _fields(draw, subject, asked, untold)
    statement = draw.pick(_STATEMENTS)(draw, fields)
    if (num_missing and draw.chance(0.7)) or draw.chance(0.08):
        statement += ("\n" if "\n" in statement or statement[-1] != "." else " ") + draw.pick(_NULL_HINTS)
    expected = {one.name: one.value for one in fields}
    return _written(draw, about(draw, subject, told), statement, expected, subject.keys)


def _written(draw: Draw, text: str, statement: str, expected: dict[str, object], keys: tuple[str, ...]) -> JsonTask:
    """The request with its answer, on one line or, where the request says so, with line breaks."""
    indented = draw.chance(0.06)
    if indented:
        space = " " if statement[-1] == "." else "\n"
        statement += space + draw.pick(
            ("Indent it by two spaces.", "Put every key on its own line.", "Pretty print it.")
        )
    answer = json.dumps(expected, indent=2 if indented else None)
    return JsonTask(_join_request(draw, text, statement), answer, expected, keys)


def nested_json_task(draw: Draw) -> JsonTask:
    """Two or three attributes of the record in an inner object."""
    subject = record(draw)
    told = draw.sample(ATTRIBUTES[subject.kind], draw.number(3, 4))
    used: list[str] = []
    outer = [Field(draw.pick(NAME_KEYS[subject.kind]), "string", subject.name)]
    inner: list[Field] = []
    for index, attribute in enumerate(told):
        one = _field(draw, subject, attribute, True, [*used, outer[0].name])
        used.append(one.name)
        (inner if index < 2 or draw.chance(0.4) else outer).append(one)
    group = draw.pick(("details", "info", "data", "about", "more", "facts", "profile", "properties"))
    expected: dict[str, object] = {one.name: one.value for one in outer}
    expected[group] = {one.name: one.value for one in inner}
    if draw.chance(0.5):
        names, inner_names = joined([one.name for one in outer]), joined([one.name for one in inner])
        statement = f"Return JSON with {names} and an object {group} that has {inner_names}."
    else:
        schema = {
            "type": "object",
            "properties": _schema(outer) | {group: {"type": "object", "properties": _schema(inner)}},
        }
        statement = "Answer with JSON that fits this schema: " + json.dumps(schema)
    return _written(draw, about(draw, subject, told), statement, expected, subject.keys)


_JSON_ENDS = ("\nJSON:", "\nJSON:", "\nAnswer:", "\nOutput:", "\n\nJSON:", "\nJSON:\n")


def _as_document(draw: Draw, task: JsonTask) -> Document:
    end = draw.pick(_JSON_ENDS)
    space = "" if end[-1] == "\n" else " "
    return Document("json", (task.prompt + end, space + task.answer), task.keys)


def json_prompt(draw: Draw) -> tuple[Document, dict[str, object]]:
    task = json_task(draw)
    return _as_document(draw, task), task.expected


def json_extraction(draw: Draw) -> Document:
    return _as_document(draw, nested_json_task(draw) if draw.chance(0.12) else json_task(draw))


def json_records(draw: Draw) -> Document:
    """Several records of one kind as an array of objects."""
    kind = draw.pick(("person", "person", "product", "event"))
    records = distinct_records(draw, draw.number(2, 3), kind)
    attributes = draw.sample(ATTRIBUTES[kind], draw.number(1, 2))
    name_key = draw.pick(NAME_KEYS[kind])
    used = [name_key]
    fields = [Field(name_key, "string", "")]
    for attribute in attributes:
        fields.append(_field(draw, records[0], attribute, True, used))
        used.append(fields[-1].name)
    text = " ".join(about(draw, one, list(attributes)) for one in records)
    answer = [
        {key: one.name if index == 0 else one.values[attributes[index - 1]].plain for index, key in enumerate(used)}
        for one in records
    ]
    lead = draw.pick(
        (
            "Return a JSON array of objects with",
            "List all of them as JSON objects in one array with",
            "Give a JSON array. Each object has",
        )
    )
    prompt = _join_request(draw, text, f"{lead} {joined(used)}.")
    return _as_document(draw, JsonTask(prompt, json.dumps(answer), {}, all_keys(records)))


def json_invented(draw: Draw) -> Document:
    """No text: any object of the asked shape is right."""
    subject = record(draw)
    fields = _fields(draw, subject, draw.sample(ATTRIBUTES[subject.kind], draw.number(1, 4)), [])
    lead = draw.pick(("Make up", "Invent", "Think of", "Describe", "Create"))
    statement = draw.pick((_state_typed, _state_code, _state_form, _state_schema))(draw, fields)
    prompt = f"{lead} {with_article(subject.kind)}. {statement}"
    answer = json.dumps({one.name: one.value for one in fields})
    return _as_document(draw, JsonTask(prompt, answer, {}, subject.keys))
