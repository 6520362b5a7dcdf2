"""What a client sends as messages, to what chat templates can read: plain texts, decoded arguments, known roles.

Decides which shapes are a conversation and how each mistake is named. Knows a template only as a text, to see which
roles it speaks of. Nothing is guessed: what cannot be rendered faithfully is refused.
"""

import json
import reprlib
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

from ramet.runtime.errors import ClientError
from ramet.runtime.text.tokenizer import require_unicode

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}  # part type: field
MEDIA = ("image", "audio", "video", "file")
REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")  # of several the first counts


def normalise(messages: Sequence[Any], template_source: str) -> list[dict[str, Any]]:
    """The same conversation in one form; `messages` stays as it is. Raises ClientError."""
    names: dict[str, str] = {}  # call id: the function that was called
    turns = []
    for i, message in enumerate(messages):
        turn = _turn(f"messages[{i}]", message, template_source)
        names.update(_called(turn))
        if turn["role"] == "tool" and "name" not in turn and turn.get("tool_call_id") in names:
            turn["name"] = names[turn["tool_call_id"]]
        turns.append(turn)
    return turns


def _turn(place: str, message: Any, template_source: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise ClientError(place, f"is {reprlib.repr(message)}, must be an object with role and content")
    _check_unicode(place, message)
    turn = {key: value for key, value in message.items() if value is not None}
    turn["role"] = _role(f"{place}.role", turn.get("role"), template_source)
    _check_texts(place, turn, ("name", "tool_call_id"))
    if turn["role"] == "assistant":
        _set_reasoning(place, turn)
        _set_calls(place, turn)
        if "content" not in turn and isinstance(turn.get("refusal"), str):
            turn["content"] = turn["refusal"]
    elif "tool_calls" in turn:
        raise ClientError(f"{place}.tool_calls", f"belongs to role {turn['role']!r}, must be in an assistant message")
    turn["content"] = _content(place, turn)
    return turn


def _role(place: str, role: Any, template_source: str) -> str:
    match role:
        case "function":
            return "tool"
        case "developer" if not _speaks_of(template_source, role):
            return "system"
        case str() if role in ROLES or _speaks_of(template_source, role):
            return role
    told = "is missing" if role is None else f"is {reprlib.repr(role)}"
    raise ClientError(place, f"{told}, must be one of {', '.join(ROLES)}, or a role of this model's chat template")


def _speaks_of(template_source: str, role: str) -> bool:
    """The template compares with the role: it has it between quotes."""
    return f"'{role}'" in template_source or f'"{role}"' in template_source


def _content(place: str, turn: dict[str, Any]) -> str:
    """A text in any case: templates add it to others, and would print None."""
    if "content" not in turn:
        if turn["role"] == "assistant" and (turn.get("tool_calls") or turn.get("reasoning_content")):
            return ""
        fact = "is missing, must be a text or a list of text parts"
        raise ClientError(f"{place}.content", fact, hint="only an assistant message with tool calls may have none")
    match turn["content"]:
        case str() as text:
            return text
        case list() as parts:
            return "".join(_part_text(f"{place}.content[{j}]", part) for j, part in enumerate(parts))
        case other:
            raise ClientError(f"{place}.content", f"is {reprlib.repr(other)}, must be a text or a list of text parts")


def _part_text(place: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise ClientError(place, f'is {reprlib.repr(part)}, must be an object like {{"type": "text", "text": ...}}')
    if kind not in TEXT_FIELDS:
        why = "this model takes text only" if any(medium in kind for medium in MEDIA) else "must be 'text'"
        raise ClientError(place, f"is of type {reprlib.repr(kind)}: {why}")
    text = part.get(TEXT_FIELDS[kind])
    if not isinstance(text, str):
        raise ClientError(f"{place}.{TEXT_FIELDS[kind]}", f"is {reprlib.repr(text)}, must be a text")
    return text


def _set_reasoning(place: str, turn: dict[str, Any]) -> None:
    _check_texts(place, turn, REASONING_NAMES)
    given = [turn.pop(name) for name in REASONING_NAMES if name in turn]
    if given:
        turn["reasoning_content"] = given[0]


def _set_calls(place: str, turn: dict[str, Any]) -> None:
    """`tool_calls` in one form, or not at all; the older `function_call` becomes one of them."""
    calls, older = turn.pop("tool_calls", []), turn.pop("function_call", None)
    if not isinstance(calls, list):
        raise ClientError(f"{place}.tool_calls", f"is {reprlib.repr(calls)}, must be a list")
    kept = [_call(f"{place}.tool_calls[{j}]", call) for j, call in enumerate(calls)]
    if older is not None and not kept:
        kept = [{"type": "function", "function": _function(f"{place}.function_call", older)}]
    if kept:
        turn["tool_calls"] = kept


def _call(place: str, call: Any) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise ClientError(place, f"is {reprlib.repr(call)}, must be an object with id, type and function")
    present = {key: value for key, value in call.items() if value is not None}
    _check_texts(place, present, ("id",))
    if present.get("type", "function") != "function":
        raise ClientError(f"{place}.type", f"is {reprlib.repr(present['type'])}, must be 'function'")
    return {**present, "type": "function", "function": _function(f"{place}.function", present.get("function"))}


def _function(place: str, function: Any) -> dict[str, Any]:
    if not isinstance(function, dict):
        raise ClientError(place, f"is {reprlib.repr(function)}, must be an object with name and arguments")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ClientError(f"{place}.name", f"is {reprlib.repr(name)}, must be the function's name")
    return {**function, "arguments": _arguments(f"{place}.arguments", function.get("arguments"))}


def _arguments(place: str, arguments: Any) -> dict[str, Any] | str:
    match arguments:
        case None:
            return {}
        case dict():
            return arguments
        case str():
            return _decoded(arguments)
        case _:
            raise ClientError(place, f"is {reprlib.repr(arguments)}, must be a JSON text or an object")


def _decoded(arguments: str) -> dict[str, Any] | str:
    """What a model wrote is no mistake of the client's: arguments that are no JSON object stay the text they are."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
        _check_unicode("", value)  # "\ud800" is valid JSON
    except (ValueError, RecursionError, ClientError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _called(turn: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for call in turn.get("tool_calls", ()):
        if "id" in call:
            yield call["id"], call["function"]["name"]


def _check_texts(place: str, turn: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if name in turn and not isinstance(turn[name], str):
            raise ClientError(f"{place}.{name}", f"is {reprlib.repr(turn[name])}, must be a text")


def _check_unicode(place: str, value: Any) -> None:
    """Every text in `value`, however deep: a client may nest what it likes, so this does not recurse.

    A value knows its parent, and a path is written only of one that is wrong: those of all could be larger than a body.
    """
    ahead: list[Any] = [(None, place, value)]  # (parent, key, value)
    while ahead:
        here = ahead.pop()
        match here[2]:
            case str() as text:
                if not _is_unicode(text):
                    require_unicode(text, _path(here))
            case dict() as inner:
                ahead.extend((here, f".{key}", child) for key, child in inner.items() if not isinstance(child, _PLAIN))
                ahead.extend((here, "", key) for key in inner)  # looked at first: the places above are made of them
            case list() as inner:
                ahead.extend((here, j, child) for j, child in enumerate(inner) if not isinstance(child, _PLAIN))


_PLAIN = (int, float, NoneType)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _path(here: Any) -> str:
    names: list[str] = []
    while here is not None:
        names.append(f"[{here[1]}]" if isinstance(here[1], int) else here[1])
        here = here[0]
    return "".join(reversed(names))
