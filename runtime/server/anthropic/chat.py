"""The bodies of Anthropic's endpoints, and the chats that they are.

Decides which turns are one, and what may be called. Knows no reply.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ramet.ipc.messages import Chat
from ramet.ipc.params import MAX_NEW_TOKENS, about
from ramet.ipc.spec import Constraint
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import other_servers
from ramet.runtime.intake.body import Checked, FieldRefusal
from ramet.runtime.intake.chat import Style, chosen_chat
from ramet.runtime.intake.constraints import of_schema
from ramet.runtime.intake.fields import ToolName, accepted, elsewhere, format_elsewhere, unbuilt
from ramet.runtime.intake.limits import MAX_TURNS
from ramet.runtime.intake.messages import TemplateArguments
from ramet.runtime.intake.other_tools import without_others
from ramet.runtime.intake.prompts import check_most
from ramet.runtime.intake.sampling_fields import SamplingFields, UnbuiltHidden
from ramet.runtime.intake.specs import sampled
from ramet.runtime.intake.tool_choice import CallRules, named_call
from ramet.runtime.server.anthropic.blocks import AnyTurn, TextContents
from ramet.runtime.server.anthropic.turns import Message, joined_text, messages_of
from ramet.runtime.text.fit_turns import joined


class AnthropicTool(Struct, frozen=True, kw_only=True):
    name: ToolName
    description: str | None = None
    input_schema: Annotated[dict[str, Any] | None, about("a JSON schema of the arguments")] = None
    type: Literal["custom"] | None = None
    strict: Annotated[bool | None, about("true: a call's input keeps to the schema, also where none is forced")] = None


class AnthropicChoice(Struct, frozen=True, kw_only=True):
    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingOptions(Struct, frozen=True, kw_only=True):
    type: Literal["enabled", "adaptive", "disabled"]
    display: str | None = None


class Edit(Struct, frozen=True, kw_only=True):
    """What is left out of a chat. One that keeps all thoughts leaves out nothing: the chat template gets them all."""

    type: str
    keep: Any = None

    def __post_init__(self) -> None:
        if not self.type.startswith("clear_thinking_") or self.keep != "all":
            raise FieldRefusal("type", "is {}, but leaving out what came before is not built yet", "omit it")


class ContextManagement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    edits: list[Edit] | None = None


class OutputFormat(Struct, frozen=True, kw_only=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Struct, frozen=True, kw_only=True):
    format: Annotated[OutputFormat | None, about("the text of the output is JSON that a JSON schema allows")] = None


Config = Annotated[OutputConfig | None, about("`format`; nothing is done with `effort`")]


Turns = Annotated[
    list[AnyTurn], Meta(min_length=1), about("turns of user and assistant; a last one of the assistant is continued")
]
System = Annotated[TextContents | None, about("the system text, or text blocks")]
Tools = Annotated[
    list[AnthropicTool | None] | None,
    about("functions that the model may call; tools that Anthropic defines are left out, since this server runs none"),
]
Choice = Annotated[
    AnthropicChoice | None,
    about("`auto`, `none`, `any` (at least one call) or a `tool`: a call that is forced keeps to its schema"),
]
Thinking = Annotated[
    ThinkingOptions | None,
    about(
        "`enabled`, `adaptive` (the same) or `disabled` (as if absent): given to the chat template as "
        "`enable_thinking`; nothing is done with `budget_tokens`; with the `display` `omitted` the reply has no "
        "thoughts"
    ),
]
Speed = Annotated[str | None, accepted("there is one speed")]


class CountBody(Struct, frozen=True, kw_only=True):
    """/v1/messages/count_tokens."""

    messages: Turns
    model: Annotated[str | None, about("the served model, `default`, or nothing")] = None
    system: System = None
    tools: Tools = None
    tool_choice: Choice = None
    thinking: Thinking = None
    chat_template_kwargs: TemplateArguments = None
    output_config: Config = None
    cache_control: other_servers.CacheOptions = None
    speed: Speed = None
    user_profile_id: other_servers.Unread = None
    workspace_id: other_servers.Unread = None


OutputFormatElsewhere = Annotated[Any, elsewhere("output_config.format")]
OfPrices = Annotated[Any | None, accepted("nothing is paid for")]


class MessagesOtherFormat(Checked, frozen=True):
    format: OutputFormatElsewhere = None


class MessagesBody(SamplingFields, frozen=True, kw_only=True):
    """/v1/messages."""

    max_tokens: Annotated[
        Any,
        about(
            "tokens to draw at most; cut to what the context leaves", type="integer", minimum=1, maximum=MAX_NEW_TOKENS
        ),
    ]
    stop_sequences: Annotated[Any, sampled("stop")] = None
    metadata: Annotated[dict[str, Any] | None, about("accepted; nothing is done with it")] = None
    service_tier: Annotated[str | None, about("accepted; nothing is done with it")] = None
    return_hidden_states: UnbuiltHidden = None
    mcp_servers: Annotated[list[Any] | None, unbuilt("tools of other servers")] = None
    container: Annotated[str | dict[str, Any] | None, unbuilt("a place to run code", neutral=("", {}))] = None
    context_management: Annotated[
        ContextManagement | None, about("*refused until it is built*, but for edits that keep all thoughts")
    ] = None
    output_config: Config = None
    output_format: Annotated[OutputFormat | None, about("an older name of `output_config.format`")] = None
    # the code sends the client's tool runner back to whole chats
    thread: Annotated[
        dict[str, Any] | None,
        unbuilt(
            "a chat that the server keeps; the client sends all of it",
            hint="send every turn of the chat",
            code="thread_unsupported_request",
        ),
    ] = None
    # CountBody has these fields as well; the body is converted into one.
    messages: Turns
    system: System = None
    tools: Tools = None
    tool_choice: Choice = None
    thinking: Thinking = None
    chat_template_kwargs: TemplateArguments = None
    cache_control: other_servers.CacheOptions = None
    speed: Speed = None
    user_profile_id: other_servers.Unread = None
    workspace_id: other_servers.Unread = None
    # Clients of other servers send these names.
    compaction: Annotated[Any | None, unbuilt("leaving out what came before", neutral=({},))] = None
    diagnostics: Annotated[dict[str, Any] | None, unbuilt("what happened to the request", neutral=({},))] = None
    inference_geo: Annotated[str | None, unbuilt("where it is computed", neutral=("",))] = None
    betas: Annotated[list[str] | None, accepted("nothing depends on it")] = None
    billing_policy: OfPrices = None
    fallback_credit_token: OfPrices = None
    fallbacks: Annotated[list[Any] | None, accepted("there is one model")] = None
    # Other endpoints have these names for a constraint.
    guided_json: Annotated[Any, elsewhere("output_config.format or json_schema")] = None
    guided_regex: Annotated[Any, elsewhere("regex")] = None
    guided_grammar: Annotated[Any, elsewhere("ebnf")] = None
    guided_choice: Annotated[Any, elsewhere(other_servers.CHOICE)] = None
    response_format: OutputFormatElsewhere = None
    structured_outputs: Annotated[Any, elsewhere("json_schema, regex, ebnf or structural_tag")] = None
    guided_decoding_backend: Annotated[Any, elsewhere("grammar_backend")] = None
    text: Annotated[other_servers.HeldFormat[MessagesOtherFormat], format_elsewhere("output_config.format")] = None
    guided_whitespace_pattern: other_servers.WhiteSpace = None

    def constraints(self, place: str = "") -> list[Constraint]:
        config = self.output_config
        asked = {"output_config.format": config and config.format, "output_format": self.output_format}
        schemas = [of_schema(name, form.schema) for name, form in asked.items() if form]
        return schemas + super().constraints(place)


def functions_alone(written: Mapping[str, Any]) -> dict[str, Any]:
    """A body without tools that are no functions."""
    return without_others(written, ("custom",), "input_schema")


def read_chat(body: CountBody, style: Style) -> tuple[Chat, CallRules]:
    blocks = sum([len(turn.content) for turn in body.messages if turn.content.__class__ is list])
    check_most("messages", "messages and content blocks", len(body.messages) + blocks, MAX_TURNS)
    messages = _of_turns(body.messages)
    system = joined_text(body.system or "", "\n\n")  # blocks are paragraphs of it
    thinks = body.thinking is not None and body.thinking.type != "disabled"
    tools = body.tools or []
    written = {
        "messages": [*([{"role": "system", "content": system}] if system else []), *messages],
        "tools": [tool and _tool(tool) for tool in tools],
        "chat_template_kwargs": {"enable_thinking": thinks} | (body.chat_template_kwargs or {}),
        "continue_final_message": messages[-1]["role"] == "assistant",
    }
    choice, functions = body.tool_choice, [tool for tool in tools if tool is not None]
    strict = (tool.name for tool in functions if tool.strict)
    parallel = choice is None or not choice.disable_parallel_tool_use
    calls = _calls(choice, [tool.name for tool in functions])
    return chosen_chat(written, calls, style, strict, parallel, "input_schema")


def _calls(choice: AnthropicChoice | None, names: list[str]) -> CallRules:
    match choice:
        case AnthropicChoice(type="tool", name=name):
            return named_call(name, names)
        case AnthropicChoice(type="none"):
            return CallRules()
        case AnthropicChoice(type="any") if not names:
            raise ClientError("tool_choice", "is of type 'any', but tools is empty", "it needs tools")
    return CallRules(frozenset(names), forced=choice is not None and choice.type == "any")


def _tool(tool: AnthropicTool) -> dict[str, Any]:
    schema = tool.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description or "", "parameters": schema},
    }


def _of_turns(turns: list[AnyTurn]) -> list[Message]:
    """The turns as OpenAI's messages. Consecutive turns of one role become one."""
    groups: list[list[Message]] = []
    before = ""
    for i, turn in enumerate(turns):
        for message in messages_of(turn, i):
            role = message["role"]
            if role == before and role in ("user", "assistant"):
                groups[-1].append(message)
            else:
                groups.append([message])
            before = role
    return [group[0] if len(group) == 1 else joined(group) for group in groups]
