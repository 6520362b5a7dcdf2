"""How a client steers a chat: which of its tools may be called, and how much the model is to think.

Decides what `tool_choice` means, the same for chat completions and responses, and what the template is given.
"""

from collections.abc import Sequence as Many
from typing import Any

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.chat import NOT_FORCED


def callable_tools(choice: Any, names: Many[str]) -> frozenset[str]:
    """Of the tools with these names, those that may be called. What would have to be called is refused."""
    match choice:
        case None:
            return frozenset(names)
        case "auto":
            if not names:
                raise ClientError("tool_choice", "is 'auto', but tools is empty", "it needs tools")
            return frozenset(names)
        case "none":
            return frozenset()
        case {"type": "allowed_tools"}:
            inner = choice.get("allowed_tools")
            return _allowed(choice, inner if isinstance(inner, dict) else choice, names)
        case "required" | {"type": "function" | "custom"}:
            raise ClientError("tool_choice", f"is {shown(choice)}, which {NOT_FORCED}", "use auto")
        case _:
            raise ClientError("tool_choice", f"is {shown(choice)}, must be auto, none, required or a named function")


def template_kwargs(effort: str | None, verbosity: str | None) -> dict[str, Any]:
    """Templates know either an effort or whether to think at all."""
    kwargs: dict[str, Any] = {}
    if effort is not None:
        kwargs = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return kwargs if verbosity is None else {**kwargs, "verbosity": verbosity}


def _allowed(choice: Any, allowed: dict[str, Any], names: Many[str]) -> frozenset[str]:
    """{"mode": "auto", "tools": [...]}, each tool with its name or with a function that has it."""
    if allowed.get("mode") == "required":
        raise ClientError("tool_choice", f"is {shown(choice)}, which {NOT_FORCED}", "use the mode auto")
    tools = allowed.get("tools")
    if allowed.get("mode") != "auto" or not isinstance(tools, list):
        raise ClientError("tool_choice", f"is {shown(choice)}, must have the mode auto and a list of tools")
    chosen = set[str]()
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or name not in names:
            raise ClientError("tool_choice", f"names {shown(name)}, must name some of tools: {', '.join(names)}")
        chosen.add(name)
    return frozenset(chosen)
