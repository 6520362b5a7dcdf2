"""The parts that a structural tag is put together from, in xgrammar's format; and the pattern of a text."""

from collections.abc import Iterable
from typing import Any

Part = dict[str, Any]
_SPELLED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"} | {char: f"\\{char}" for char in r"\.+*?()|[]{}^$"}
_SPELLING = str.maketrans(_SPELLED)


def exactly(text: str) -> str:
    """The pattern of this text alone, in every dialect."""
    return text.translate(_SPELLING)


ANY_TEXT: Part = {"type": "any_text"}


def literal(text: str) -> Part:
    return {"type": "const_string", "value": text}


def json_of(schema: dict[str, Any]) -> Part:
    return {"type": "json_schema", "json_schema": schema}


def matching(pattern: str) -> Part:
    return {"type": "regex", "pattern": pattern}


def row(*parts: Part) -> Part:
    return {"type": "sequence", "elements": list(parts)}


def either(parts: Iterable[Part]) -> Part:
    return {"type": "or", "elements": list(parts)}


def tag(begin: str, content: Part, end: str) -> Part:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def separated(tags: list[Part], separator: str, single: bool) -> Part:
    """One of these tags, or more of them in a row where they are not `single`."""
    return {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": single,
    }


def among_text(trigger: str, tags: list[Part], single: bool) -> Part:
    """Any text, in which one of these tags stands wherever the trigger does. `single`: the text ends with the first."""
    return {
        "type": "triggered_tags",
        "triggers": [trigger],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": single,
    }
