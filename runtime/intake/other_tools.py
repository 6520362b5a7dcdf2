"""Removes tools that are not functions: those that run on a provider's servers, and those without a schema.

Clients send them together with functions; Codex, for example, sends a web search. This server runs no tools, so they
are left out as if the client had not sent them. A tool_choice that forces one is refused. Works on the body before its
types are checked, and replaces each such tool by null, so that errors number the others as the client does.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from itertools import islice
from typing import Any

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.limits import MAX_TOOLS
from ramet.runtime.intake.misspelt import CLOSE, MAX_COMPARED, meant
from ramet.runtime.intake.prompts import check_most

FUNCTION = ("function",)
LEAVES_ALL = (None, "auto", "required")  # choices of tools after which the model may call any of them
HINT = "this server runs no tools: it offers functions to the model, which the client runs"


def without_others(written: Mapping[str, Any], kinds: Collection[str] = FUNCTION, schema: str = "") -> dict[str, Any]:
    """The body with only functions in `tools` and `tool_choice`. Raises ClientError if a removed tool is forced, or if
    too many may be called.

    `kinds`: this endpoint's types of functions; a tool without a type is one. `schema`: a key that only functions have.
    """
    body, tools = dict(written), written.get("tools")
    if not isinstance(tools, list):
        return body
    if None in tools:
        raise ClientError(f"tools[{tools.index(None)}]", "is None, must be an object")
    written_kinds = [_kind(tool) for tool in tools]
    other_kinds = _others(written_kinds, kinds)
    others = [
        kind in other_kinds and not (schema and schema in tool) for tool, kind in zip(tools, written_kinds, strict=True)
    ]
    if written.get("tool_choice") in LEAVES_ALL:
        check_most("tools", "entries", others.count(False), MAX_TOOLS)  # before anybody looks into thousands of them
    if any(others):
        left_out = [tool for tool, other in zip(tools, others, strict=True) if other]
        body["tools"] = [None if other else tool for tool, other in zip(tools, others, strict=True)]
        body["tool_choice"] = _chosen(body.get("tool_choice"), left_out, num_left=others.count(False))
    return body


def _kind(tool: Any) -> str:
    """The tool's type, or nothing if it has none that is a text: that is refused when types are checked."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    return kind if isinstance(kind, str) else ""


def _others(written: Sequence[str], kinds: Collection[str]) -> Set[str]:
    """The types of tools that are not functions. A misspelt type counts as a function's, so that it is refused later.

    Each type is compared once, and at most MAX_COMPARED of them are: of more, the others are no misspelt functions.
    """
    distinct = dict.fromkeys(filter(None, written))
    functions = {kind for kind in islice(distinct, MAX_COMPARED) if meant(kind, kinds, CLOSE)}
    return distinct.keys() - functions - frozenset(kinds)


def _chosen(choice: Any, left_out: list[dict[str, Any]], num_left: int) -> Any:
    names = {tool["type"] for tool in left_out} | {_name(tool) for tool in left_out}
    forces = choice == "required"
    if isinstance(choice, dict):
        forces = choice.get("type") == "any"
        named = next((each for each in (choice.get("type"), _name(choice)) if each in names), None)
        if named is not None:
            raise ClientError("tool_choice", f"names {shown(named)}, which is left out of tools", HINT)
        if choice.get("type") == "allowed_tools":
            return _allowed(choice, names)
    if forces and not num_left:
        kinds = ", ".join(sorted({shown(tool["type"]) for tool in left_out}))
        raise ClientError("tool_choice", f"forces a call, but tools has no functions, only {kinds}", HINT)
    return choice


def _allowed(choice: dict[str, Any], names: set[Any]) -> Any:
    """The choice without the tools that are left out."""
    held = choice if "tools" in choice else choice.get("allowed_tools")
    tools = held.get("tools") if isinstance(held, dict) else None
    if not isinstance(held, dict) or not isinstance(tools, list):
        return choice
    kept = [tool for tool in tools if not (isinstance(tool, dict) and {tool.get("type"), _name(tool)} & names)]
    if tools and not kept:
        if held.get("mode") == "required":
            raise ClientError("tool_choice", "allows only tools that are left out, and forces a call", HINT)
        return "none"
    held = {**held, "tools": kept}
    return held if "tools" in choice else {**choice, "allowed_tools": held}


def _name(tool: dict[str, Any]) -> Any:
    """The name in a tool or a choice. In chats it is in an object under the tool's type."""
    kind = tool.get("type")
    inner = tool.get(kind) if isinstance(kind, str) else None
    name = inner.get("name") if isinstance(inner, dict) else tool.get("name")
    return name if isinstance(name, str) else None
