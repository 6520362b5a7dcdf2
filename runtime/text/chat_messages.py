"""What a client sends as messages, to what chat templates can read: texts, decoded arguments, known roles.

Decides what a template gets of a conversation, and refuses what it could not render faithfully: nothing is guessed.
Types were checked at intake (runtime/intake/messages.py). Knows a template only as a text, to see which roles it names.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ramet.ipc.media import MediaKind
from ramet.ipc.params import shown
from ramet.runtime import exact_json
from ramet.runtime.errors import ClientError

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MEDIA = tuple(kind.value for kind in MediaKind)  # types of parts that stand for a piece
REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")  # of several the first counts


def template_part(kind: str) -> dict[str, str]:
    """What stands for a piece in a message's content. Some templates look at the type, some for a key of the kind."""
    return {"type": kind, kind: ""}


def normalise(messages: Sequence[dict[str, Any]], template_source: str) -> list[dict[str, Any]]:
    """The same conversation in one form; `messages` stays as it is. Raises ClientError."""
    names: dict[str, str] = {}  # call id: the function that was called
    roles: dict[str, str] = {}  # as a client writes it: as the template reads it
    turns = []
    for i, message in enumerate(messages):
        written = message["role"]
        if written not in roles:
            roles[written] = _role(f"messages[{i}].role", written, template_source)
        role = roles[written]
        if len(message) == 2 and message.get("content").__class__ is str:  # a chat may have thousands of them
            turns.append(message if role == written else {**message, "role": role})
            continue
        turn = _turn(i, message, role)
        if "tool_calls" in turn:
            names.update(_called(turn))
        elif turn["role"] == "tool" and "name" not in turn and turn.get("tool_call_id") in names:
            turn["name"] = names[turn["tool_call_id"]]
        turns.append(turn)
    return turns


def _turn(index: int, message: dict[str, Any], role: str) -> dict[str, Any]:
    turn = dict(message)
    if None in turn.values():
        turn = {key: value for key, value in turn.items() if value is not None}
    turn["role"] = role
    if role == "assistant":
        if not turn.keys().isdisjoint(REASONING_NAMES):
            _set_reasoning(turn)
        if "tool_calls" in turn or "function_call" in turn:
            _set_calls(turn)
        if "content" not in turn and "refusal" in turn:
            turn["content"] = turn["refusal"]
    elif "tool_calls" in turn:
        fact = f"belongs to role {shown(role)}, must be in an assistant message"
        raise ClientError(f"messages[{index}].tool_calls", fact)
    if turn.get("content").__class__ is not str:
        turn["content"] = _content(f"messages[{index}].content", turn)
    return turn


def _role(place: str, role: str, template_source: str) -> str:
    match role:
        case "function":
            return "tool"
        case "developer" if not _names_role(template_source, role):
            return "system"
        case _ if role in ROLES or _names_role(template_source, role):
            return role
    valid = f"{', '.join(ROLES)}, or a role of this model's chat template"
    raise ClientError(place, f"is {shown(role)}, must be one of {valid}")


def _names_role(template_source: str, role: str) -> bool:
    """The template compares with the role: it has it between quotes."""
    return f"'{role}'" in template_source or f'"{role}"' in template_source


def _content(place: str, turn: dict[str, Any]) -> str | list[dict[str, Any]]:
    """A text, for templates add it to others and would print None; with media its parts."""
    match turn.get("content"):
        case list() as parts if any(part["type"] in MEDIA for part in parts):
            return [part if part["type"] in MEDIA else {"type": "text", "text": _text(part)} for part in parts]
        case list() as parts:
            return "".join(map(_text, parts))
    if turn["role"] == "assistant" and (turn.get("tool_calls") or turn.get("reasoning_content")):
        return ""
    hint = "only an assistant message with tool calls may have none"
    raise ClientError(place, "is missing, must be a text or a list of text parts", hint)


def _text(part: dict[str, Any]) -> str:
    text: str = part["refusal" if part["type"] == "refusal" else "text"]
    return text


def _set_reasoning(turn: dict[str, Any]) -> None:
    given = [turn.pop(name) for name in REASONING_NAMES if name in turn]
    turn["reasoning_content"] = given[0]


def _set_calls(turn: dict[str, Any]) -> None:
    """`tool_calls` in one form, or not at all; the older `function_call` becomes one of them."""
    calls, older = turn.pop("tool_calls", []), turn.pop("function_call", None)
    if older is not None and not calls:
        calls = [{"function": older}]
    if calls:
        turn["tool_calls"] = [_call(call) for call in calls]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    present = {key: value for key, value in call.items() if value is not None} if None in call.values() else {**call}
    if "custom" in present:
        custom = present.pop("custom")
        present.setdefault("function", {"name": custom["name"], "arguments": {"input": custom["input"]}})
    function = present["function"]
    present["type"] = "function"
    present["function"] = {**function, "arguments": _arguments(function.get("arguments"))}
    return present


def _arguments(arguments: dict[str, Any] | str | None) -> dict[str, Any] | str:
    """What a model wrote is no mistake of the client's: arguments that are no JSON object stay the text they are."""
    if isinstance(arguments, dict):
        return arguments
    if arguments is None or not arguments.strip():
        return {}
    try:
        value = exact_json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _called(turn: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for call in turn.get("tool_calls", ()):
        if "id" in call:
            yield call["id"], call["function"]["name"]
