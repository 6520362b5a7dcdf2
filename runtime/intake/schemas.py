"""JSON schemas of what no struct describes: prompts, messages, and choices between words. Only shapes.

A keyword that stands beside a type's own schema bears on values of its kind alone: `minimum` says nothing of null.
"""

from typing import Any

from ramet.ipc.params import CHECKS
from ramet.runtime.intake import limits
from ramet.runtime.intake.limits import MAX_RID_CHARS, MOST_EMBED, MOST_IDS, MOST_KEY_CHARS

Schema = dict[str, Any]
INT32 = 1 << 31
STRING: Schema = {"type": "string"}
STRING_OR_NULL: Schema = {"type": ["string", "null"]}
TEXT: Schema = {"type": "string", "minLength": 1}
TOKEN_ID: Schema = {"type": "integer", "minimum": 0, "maximum": INT32 - 1}
IDS: Schema = {"type": "array", "items": TOKEN_ID, "minItems": 1}
TOOL_NAME = "^[A-Za-z0-9_.:/-]{1,128}$"
IN_INT32: Schema = {"minimum": -INT32, "maximum": INT32 - 1}
KEY: Schema = {"maxLength": MOST_KEY_CHARS}
RID: Schema = {"minLength": 1, "maxLength": MAX_RID_CHARS, "pattern": limits.RID}
HIDDEN_STATES: list[Any] = [True, False, "last", None]
HIDDEN_OR_LIST: list[Schema] = [{"enum": HIDDEN_STATES}, {"type": "array", "items": {"enum": HIDDEN_STATES}}]
SAMPLING: Schema = {name: {"anyOf": [check.schema, {"type": "null"}]} for name, check in CHECKS.items()}


def each(**keywords: Any) -> Schema:
    """For a field that is one value, or a list of them."""
    return {**keywords, "items": keywords}


def one_of(*words: str) -> Schema:
    """For a field that may be null."""
    return {"enum": [*words, None]}


def typed_fields(*kinds: str) -> Schema:
    """Of an object that has a `type`."""
    return {"required": ["type"], "properties": {"type": {"enum": list(kinds)}}}


def typed(*kinds: str) -> Schema:
    return {"type": "object", **typed_fields(*kinds)}


def texts_or_ids(most: int | None = None) -> Schema:
    """A text, token ids, or a list of either."""
    lists = [{"type": "array", "items": each, "minItems": 1} for each in (TEXT, IDS)]
    if most is not None:
        lists = [{**each, "maxItems": most} for each in lists]
    return {"anyOf": [TEXT, IDS, *lists]}


IDS_OR_NULL: Schema = {
    "anyOf": [TOKEN_ID, {"type": "array", "items": TOKEN_ID, "maxItems": MOST_IDS}, {"type": "null"}]
}
ID_OR_IDS: Schema = {"anyOf": [TOKEN_ID, IDS]}
ROW: Schema = {
    "type": "array",
    "items": {"type": "number", "minimum": -MOST_EMBED, "maximum": MOST_EMBED},
    "minItems": 1,
}
ROW_OR_ROWS: Schema = {"anyOf": [ROW, {"type": "array", "items": ROW, "minItems": 1}]}
ID_LISTS: Schema = {"anyOf": [IDS, {"type": "array", "items": IDS, "minItems": 1}]}
TOOL_CHOICE: Schema = {
    "anyOf": [
        {"enum": ["auto", "none", "required"]},
        typed("function", "allowed_tools", "custom"),
        {"type": "null"},
    ]
}


def _part(*kinds: str, field: str = "text") -> Schema:
    return {
        "type": "object",
        "required": ["type", field],
        "properties": {"type": {"enum": list(kinds)}, field: {"type": "string"}},
    }


def _content(*parts: Schema) -> Schema:
    return {"anyOf": [STRING, {"type": "array", "items": {"anyOf": list(parts)}}]}


_REFUSAL = _part("refusal", field="refusal")
_CHAT_CONTENT = _content(_part("text", "input_text", "output_text"), _REFUSAL)
_CALL: Schema = {
    "type": "object",
    "required": ["function"],
    "properties": {
        "id": STRING_OR_NULL,
        "type": {"enum": ["function", None]},
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": TEXT, "arguments": {"type": ["string", "object", "null"]}},
        },
    },
}


def _turn(roles: list[str], required: list[str], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["role", *required],
        "properties": {
            "role": {"enum": roles}, "name": STRING_OR_NULL, "tool_call_id": STRING_OR_NULL, **properties
        },
    }  # fmt: skip


# of /v1/chat/completions; a role of the model's own chat template is taken as well
MESSAGE: Schema = {
    "anyOf": [
        _turn(["system", "developer", "user", "tool", "function"], ["content"], content=_CHAT_CONTENT),
        _turn(
            ["assistant"],
            ["content"],
            content=_CHAT_CONTENT,
            reasoning_content=STRING_OR_NULL,
            tool_calls={"type": ["array", "null"], "items": _CALL},
        ),
        _turn(
            ["assistant"],
            ["tool_calls"],
            content={"type": "null"},
            reasoning_content=STRING_OR_NULL,
            tool_calls={"type": "array", "items": _CALL, "minItems": 1},
        ),
    ]
}
_RESPONSE_CONTENT = _content(_part("input_text", "output_text", "text", "reasoning_text"), _REFUSAL)


def _object(kind: str, required: dict[str, Schema], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["type", *required],
        "properties": {"type": {"const": kind}, **required, **properties},
    }


# of /v1/responses
ITEM: Schema = {
    "anyOf": [
        {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "type": {"const": "message"},
                "role": {"enum": ["user", "assistant", "system", "developer"]},
                "content": _RESPONSE_CONTENT,
            },
        },
        _object("function_call", {"call_id": STRING, "name": TEXT, "arguments": STRING}),
        _object("function_call_output", {"call_id": STRING, "output": _RESPONSE_CONTENT}),
        _object(
            "reasoning", {}, content={"anyOf": [*_RESPONSE_CONTENT["anyOf"][1:], {"type": "null"}]}
        ),
    ]
}  # fmt: skip
INPUT: Schema = {"anyOf": [STRING, {"type": "array", "items": ITEM, "minItems": 1}]}

# of /v1/messages
TEXT_BLOCK = _object("text", {"text": STRING})
_TEXT_BLOCKS: Schema = {"anyOf": [STRING, {"type": "array", "items": TEXT_BLOCK}, {"type": "null"}]}
_TOOL_USE = _object("tool_use", {"id": STRING, "name": TEXT, "input": {"type": "object"}})
_TOOL_RESULT = _object(
    "tool_result", {"tool_use_id": STRING}, content=_TEXT_BLOCKS, is_error={"type": ["boolean", "null"]}
)
_THINKING = _object("thinking", {"thinking": STRING})


def _blocks(role: str, *blocks: Schema) -> Schema:
    content: Schema = {"anyOf": [STRING, {"type": "array", "items": {"anyOf": list(blocks)}}]}
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"const": role}, "content": content},
    }


ANTHROPIC_MESSAGE: Schema = {
    "anyOf": [
        _blocks("user", TEXT_BLOCK, _TOOL_RESULT),
        _blocks(
            "assistant",
            TEXT_BLOCK,
            _TOOL_USE,
            _THINKING,
            {"type": "object", "required": ["type"], "properties": {"type": {"const": "redacted_thinking"}}},
        ),
        _blocks("system", TEXT_BLOCK),
    ]
}
