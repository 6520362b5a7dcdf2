"""The body of /v1/chat/completions and the parts of its replies. Only shapes."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ramet.ipc.params import about
from ramet.runtime.intake.extras import MOST_CHAT_TOP
from ramet.runtime.intake.fields import sampled, unbuilt
from ramet.runtime.intake.schemas import MESSAGE, TOOL_CHOICE, TOOL_NAME
from ramet.runtime.server.openai.types import SamplingBody

MESSAGES = about(
    "the chat: role, content (text, or parts of it), tool_calls, tool_call_id, reasoning_content",
    items=MESSAGE,
    minItems=1,
)


class Function(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(pattern=TOOL_NAME)]
    description: str | None = None
    parameters: Annotated[dict[str, Any] | None, about("a JSON schema of the arguments")] = None
    strict: Annotated[bool | None, about("accepted; arguments keep to the schema as well as the model can")] = None


class Tool(Struct, frozen=True, kw_only=True):
    function: Function
    type: Literal["function"] = "function"


# What a prompt depends on beside messages and tools: of chats, and of chats that are only tokenised.
ReasoningEffort = Annotated[str | None, about("given to the chat template, with `enable_thinking` (false for `none`)")]
Verbosity = Annotated[str | None, about("given to the chat template")]
ChatTemplateKwargs = Annotated[dict[str, Any] | None, about("given to the chat template")]
Documents = Annotated[list[dict[str, Any]] | None, about("given to the chat template")]
AddGenerationPrompt = Annotated[bool | None, about("false: the prompt does not begin the reply")]
ContinueFinalMessage = Annotated[bool | None, about("the output goes on where the last message ends")]


class ChatBody(SamplingBody, frozen=True, kw_only=True):
    """/v1/chat/completions."""

    messages: Annotated[list[Any], MESSAGES]
    max_tokens: Annotated[Any, sampled("max_new_tokens", "to the context's end if it is absent")] = None
    max_completion_tokens: Annotated[Any, sampled("max_new_tokens", "goes before `max_tokens`")] = None
    logprobs: Annotated[bool | None, about("log-probabilities of the output's tokens")] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_CHAT_TOP)] | None,
        about("at each place those of this many best tokens; needs `logprobs`"),
    ] = None
    tools: Annotated[list[Tool] | None, about("functions that the model may call")] = None
    tool_choice: Annotated[
        Any, about("`auto` or `none`; `required` and a named function are not built yet", **TOOL_CHOICE)
    ] = None
    parallel_tool_calls: Annotated[bool | None, about("false: nothing is told from a second call on")] = None
    reasoning_effort: ReasoningEffort = None
    verbosity: Verbosity = None
    chat_template_kwargs: ChatTemplateKwargs = None
    documents: Documents = None
    add_generation_prompt: AddGenerationPrompt = None
    continue_final_message: ContinueFinalMessage = None
    separate_reasoning: Annotated[bool | None, about("false: reasoning stays in the content")] = None
    modalities: Annotated[list[str] | None, unbuilt('anything but ["text"]')] = None
    audio: Annotated[dict[str, Any] | None, unbuilt("speech")] = None
    web_search_options: Annotated[dict[str, Any] | None, unbuilt("searching the web")] = None
    functions: Annotated[list[Any] | None, unbuilt("the old form of `tools`")] = None
    function_call: Annotated[str | dict[str, Any] | None, unbuilt("the old form of `tool_choice`")] = None
    chat_template: Annotated[str | None, unbuilt("a template of the client's; the server's is `--chat-template`")] = (
        None
    )


class TokenizeBody(Struct, frozen=True, kw_only=True):
    """/v1/tokenize."""

    prompt: Annotated[str | list[str] | None, about("a text, or a list of them", minItems=1)] = None
    messages: Annotated[
        list[dict[str, Any]] | None, about("a chat, in the place of a prompt", items=MESSAGE, minItems=1)
    ] = None
    tools: Annotated[list[Tool] | None, about("what the chat offers")] = None
    model: str | None = None
    reasoning_effort: ReasoningEffort = None
    verbosity: Verbosity = None
    chat_template_kwargs: ChatTemplateKwargs = None
    documents: Documents = None
    add_generation_prompt: AddGenerationPrompt = None
    continue_final_message: ContinueFinalMessage = None
    add_special_tokens: Annotated[
        bool, about("as the tokenizer does before a prompt; a chat's template writes its own")
    ] = True


# Fields whose feature is not built: the values that ask for nothing.
UNBUILT: dict[str, tuple[Any, ...]] = {
    "modalities": ("text",), "audio": (), "web_search_options": (), "functions": (), "function_call": ("none",),
    "chat_template": ("",),
}  # fmt: skip
