"""The tools of /v1/responses: functions and groups of functions, and how a reply lists them.

Decides the name by which the model calls a function of a group. Tools of other types have been removed.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from msgspec import Raw, Struct, to_builtins

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.fields import ToolName
from ramet.runtime.intake.messages import Function
from ramet.runtime.intake.other_tools import FUNCTION, without_others
from ramet.runtime.server.openai.responses_items import full_name

GROUP = "namespace"


class ResponseTool(Function, frozen=True, kw_only=True, tag_field="type", tag="function"):
    """A function."""


class ToolNamespace(Struct, frozen=True, kw_only=True, tag_field="type", tag=GROUP):
    """Functions that belong together, such as those of one MCP server. A call names the namespace and the function."""

    name: ToolName
    description: str | None = None
    tools: list[ResponseTool | None]


ResponseTools = list[ResponseTool | ToolNamespace | None]


class Offered(NamedTuple):
    """A function that the model may call."""

    place: str  # its field in the body
    name: str  # the name by which the model calls it
    tool: ResponseTool

    @property
    def as_chats_have_it(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.tool.description, "parameters": self.tool.parameters}
        return {"type": "function", "function": function}


def with_functions(written: Mapping[str, Any]) -> dict[str, Any]:
    """The body without tools that are not functions, in namespaces as well."""
    body = without_others(written, (*FUNCTION, GROUP))
    if isinstance(body.get("tools"), list):
        body["tools"] = [_inside(i, tool) for i, tool in enumerate(body["tools"])]
    return body


def _inside(place: int, tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != GROUP or "tools" not in tool:
        return tool
    try:
        return {**tool, "tools": without_others({"tools": tool["tools"]})["tools"]}
    except ClientError as error:
        raise error.at(f"tools[{place}].{error.place}") from None


def functions_of(tools: ResponseTools | None) -> list[Offered]:
    found: list[Offered] = []
    for i, tool in enumerate(tools or ()):
        match tool:
            case ResponseTool(name=name):
                found.append(Offered(f"tools[{i}]", name, tool))
            case ToolNamespace(name=group, tools=inner):
                each = ((j, one) for j, one in enumerate(inner) if one is not None)
                found += [Offered(f"tools[{i}].tools[{j}]", full_name(group, one.name), one) for j, one in each]
    return found


def as_replied(tools: ResponseTools | None) -> list[dict[str, Any]]:
    """The tools as a reply lists them, without those that were removed."""
    given: list[dict[str, Any]] = [
        to_builtins(tool, builtin_types=(Decimal, Raw)) for tool in tools or () if tool is not None
    ]
    for tool in given:
        if tool["type"] == GROUP:
            tool["tools"] = [one for one in tool["tools"] if one is not None]
    return given


def groups_in(tools: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """The name by which the model calls a function -> (namespace, own name). `tools`: as a reply lists them."""
    groups = [tool for tool in tools if tool["type"] == GROUP]
    return {full_name(g["name"], one["name"]): (g["name"], one["name"]) for g in groups for one in g["tools"]}
