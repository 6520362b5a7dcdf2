"""The bodies of /v1/chat/completions and /v1/tokenize. Only shapes."""

from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import fields

from ramet.ipc.params import about
from ramet.runtime.intake.fields import including, unbuilt
from ramet.runtime.intake.limits import MAX_CHAT_TOP
from ramet.runtime.intake.messages import Messages, ParallelCalls, TemplateFields, Tool, ToolChoice
from ramet.runtime.intake.specs import sampled
from ramet.runtime.server.openai.types import SamplingBody


@including((field.name, field.type, field.default) for field in fields(TemplateFields))
class ChatBody(SamplingBody, frozen=True, kw_only=True):
    """/v1/chat/completions."""

    messages: Messages
    max_tokens: Annotated[Any, sampled("max_new_tokens", "to the context's end if it is absent")] = None
    max_completion_tokens: Annotated[Any, sampled("max_new_tokens", "goes before `max_tokens`")] = None
    logprobs: Annotated[bool | None, about("log-probabilities of the output's tokens")] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_CHAT_TOP)] | None,
        about("at each place those of this many best tokens; needs `logprobs`"),
    ] = None
    tools: Annotated[list[Tool] | None, about("functions that the model may call")] = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: ParallelCalls = None
    separate_reasoning: Annotated[bool | None, about("false: reasoning stays in the content")] = None
    modalities: Annotated[list[str] | None, unbuilt('anything but ["text"]', neutral=("text",))] = None
    audio: Annotated[dict[str, Any] | None, unbuilt("speech")] = None
    web_search_options: Annotated[dict[str, Any] | None, unbuilt("searching the web")] = None
    functions: Annotated[list[Any] | None, unbuilt("the old form of `tools`")] = None
    function_call: Annotated[
        str | dict[str, Any] | None, unbuilt("the old form of `tool_choice`", neutral=("none",))
    ] = None
    chat_template: Annotated[
        str | None, unbuilt("a template of the client's; the server's is `--chat-template`", neutral=("",))
    ] = None


class TokenizeBody(TemplateFields, frozen=True, kw_only=True):
    """/v1/tokenize."""

    prompt: Annotated[str | Annotated[list[str], Meta(min_length=1)] | None, about("a text, or a list of them")] = None
    messages: Annotated[Messages | None, about("a chat, in the place of a prompt")] = None
    tools: Annotated[list[Tool] | None, about("what the chat offers")] = None
    model: str | None = None
    add_special_tokens: Annotated[
        bool, about("as the tokenizer does before a prompt; a chat's template writes its own")
    ] = True
