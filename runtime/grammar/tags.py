"""Reads structural tags: literals, schemas, patterns, grammars and free text, put together as JSON.

Both of xgrammar's formats: `{"type": "structural_tag", "format": ...}`, and the older one of structures and triggers.
"""

from dataclasses import dataclass
from typing import Any

from ramet.ipc.params import quoted, shown
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.json_schema import parse

MAX_DEPTH = 32
MAX_PARTS = 5_000


@dataclass(frozen=True, slots=True)
class Const:
    text: str


@dataclass(frozen=True, slots=True)
class Json:
    schema: Any
    place: str


@dataclass(frozen=True, slots=True)
class Pattern:
    pattern: str
    place: str


@dataclass(frozen=True, slots=True)
class Gbnf:
    grammar: str
    place: str


@dataclass(frozen=True, slots=True)
class AnyText:
    place: str


@dataclass(frozen=True, slots=True)
class TagSequence:
    elements: tuple["Format", ...]


@dataclass(frozen=True, slots=True)
class Or:
    elements: tuple["Format", ...]


@dataclass(frozen=True, slots=True)
class Tag:
    begin: str
    content: "Format"
    ends: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True)
class Triggered:
    """Free text in which a trigger begins one of the tags."""

    triggers: tuple[str, ...]
    tags: tuple[Tag, ...]
    at_least_one: bool  # it begins with a tag
    stop_after_first: bool
    place: str


@dataclass(frozen=True, slots=True)
class Separated:
    tags: tuple[Tag, ...]
    separator: str
    at_least_one: bool
    stop_after_first: bool


Format = Const | Json | Pattern | Gbnf | AnyText | TagSequence | Or | Tag | Triggered | Separated
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {  # of each type: those that it must have
    "const_string": {"value": str},
    "json_schema": {"json_schema": (dict, bool)},
    "regex": {"pattern": str},
    "grammar": {"grammar": str},
    "any_text": {},
    "sequence": {"elements": list},
    "or": {"elements": list},
    "tag": {"begin": str, "content": dict, "end": (str, list)},
    "triggered_tags": {"triggers": list, "tags": list},
    "tags_with_separator": {"tags": list, "separator": str},
}
FLAGS = ("at_least_one", "stop_after_first")
NEUTRAL: dict[str, Any] = {"style": "json", "any_order": False, "excludes": [], "max_tokens": None, "max_chars": None}


def read(text: str) -> Format:
    """Raises GrammarError that names the place of what is wrong."""
    whole = parse(text)
    if isinstance(whole, dict) and "structures" in whole:
        return TagReader().format(as_triggered(whole), "#")
    if not isinstance(whole, dict) or whole.get("type") != "structural_tag" or "format" not in whole:
        raise GrammarError('is no structural tag, must be {"type": "structural_tag", "format": ...}')
    unknown = sorted({*whole} - {"type", "format"})
    if unknown:
        raise GrammarError(f"has {quoted(unknown[0])}, which is not enforced")
    return TagReader().format(whole["format"], "#/format")


def as_triggered(old: dict[str, Any]) -> dict[str, Any]:
    structures = old["structures"]
    if not isinstance(structures, list) or not all(isinstance(s, dict) and "schema" in s for s in structures):
        raise GrammarError("#/structures must be a list of objects with begin, schema and end")
    contents = [{"type": "json_schema", "json_schema": s["schema"]} for s in structures]
    tags = [
        {"type": "tag", "begin": s.get("begin"), "content": content, "end": s.get("end")}
        for s, content in zip(structures, contents)
    ]
    return {"type": "triggered_tags", "triggers": old.get("triggers"), "tags": tags}


class TagReader:
    def __init__(self) -> None:
        self.num_parts = 0

    def format(self, value: Any, place: str, depth: int = 0, default_type: str | None = None) -> Format:
        self.num_parts += 1
        if depth > MAX_DEPTH or self.num_parts > MAX_PARTS:
            raise GrammarError(
                f"{place}: has more than {MAX_PARTS} parts, or they are nested more than {MAX_DEPTH} deep"
            )
        name = value.get("type", default_type) if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(name, str) or name not in FIELDS:
            raise GrammarError(f"{place}/type is {shown(name)}, must be one of {', '.join(FIELDS)}")
        for field, kind in FIELDS[name].items():
            if not isinstance(value.get(field), kind):
                raise GrammarError(f"{place}/{field} is missing or no {words(kind)}")
        self.check_others(value, name, place)
        match name:
            case "const_string":
                return Const(value["value"])
            case "json_schema":
                return Json(value["json_schema"], f"{place}/json_schema")
            case "regex":
                return Pattern(value["pattern"], f"{place}/pattern")
            case "grammar":
                return Gbnf(value["grammar"], f"{place}/grammar")
            case "any_text":
                return AnyText(place)
            case "sequence":
                return TagSequence(self.formats(value["elements"], f"{place}/elements", depth))
            case "or":
                return Or(self.formats(value["elements"], f"{place}/elements", depth))
            case "tag":
                return self.tag(value, place, depth)
            case "triggered_tags":
                tags = self.tags(value["tags"], f"{place}/tags", depth)
                triggers = strings(value["triggers"], f"{place}/triggers")
                return Triggered(triggers, tags, *flags(value), place)
            case _:
                return Separated(self.tags(value["tags"], f"{place}/tags", depth), value["separator"], *flags(value))

    def check_others(self, value: dict[str, Any], name: str, place: str) -> None:
        with_flags = name in ("triggered_tags", "tags_with_separator")
        for field, inner in value.items():
            if field == "type" or field in FIELDS[name] or (field in NEUTRAL and inner == NEUTRAL[field]):
                continue
            if not with_flags or field not in FLAGS:
                raise GrammarError(f"{place}/{field}: {field!r} is not enforced")
            if not isinstance(inner, bool):
                raise GrammarError(f"{place}/{field} must be true or false")

    def formats(self, values: list[Any], place: str, depth: int) -> tuple[Format, ...]:
        if not values:
            raise GrammarError(f"{place} is empty")
        return tuple(self.format(value, f"{place}/{i}", depth + 1) for i, value in enumerate(values))

    def tags(self, values: list[Any], place: str, depth: int) -> tuple[Tag, ...]:
        if not values:
            raise GrammarError(f"{place} is empty")
        found = []
        for i, value in enumerate(values):
            tag = self.format(value, f"{place}/{i}", depth + 1, default_type="tag")
            if not isinstance(tag, Tag):
                raise GrammarError(f"{place}/{i}/type must be tag")
            found.append(tag)
        return tuple(found)

    def tag(self, value: dict[str, Any], place: str, depth: int) -> Tag:
        ends = [value["end"]] if isinstance(value["end"], str) else value["end"]
        content = self.format(value["content"], f"{place}/content", depth + 1)
        return Tag(value["begin"], content, strings(ends, f"{place}/end", may_be_empty=True), place)


def flags(value: dict[str, Any]) -> tuple[bool, bool]:
    return value.get("at_least_one", False), value.get("stop_after_first", False)


def strings(values: list[Any], place: str, may_be_empty: bool = False) -> tuple[str, ...]:
    if not values or not all(isinstance(value, str) and (value or may_be_empty) for value in values):
        raise GrammarError(f"{place} must be strings{'' if may_be_empty else ' that are not empty'}, one or more")
    return tuple(values)


def words(kind: type | tuple[type, ...]) -> str:
    names = {str: "string", dict: "object", list: "list", bool: "flag"}
    return " or ".join(names[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
