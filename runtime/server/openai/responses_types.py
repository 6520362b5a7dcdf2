"""The body of /v1/responses. Only shapes; input items are read in responses_chat.py."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ramet.ipc.params import about
from ramet.runtime.intake.extras import MOST_CHAT_TOP
from ramet.runtime.intake.fields import sampled, unbuilt
from ramet.runtime.intake.sampling_fields import SamplingFields
from ramet.runtime.intake.schemas import HIDDEN_STATES, INPUT, TOOL_CHOICE, TOOL_NAME, one_of, typed_fields

NAMED = {"required": ["type", "name"], "properties": {"name": {"type": "string", "pattern": TOOL_NAME}}}


class ResponseTool(Struct, frozen=True, kw_only=True):
    type: Annotated[str, about("`function`; OpenAI's own tools run on its servers alone", enum=["function"])]
    name: Annotated[str, Meta(pattern=TOOL_NAME)] | None = None
    description: str | None = None
    parameters: Annotated[dict[str, Any] | None, about("a JSON schema of the arguments")] = None
    strict: Annotated[bool | None, about("accepted; arguments keep to the schema as well as the model can")] = None


class ReasoningOptions(Struct, frozen=True, kw_only=True):
    effort: Annotated[str | None, about("given to the chat template, with `enable_thinking` (false for `none`)")] = None
    summary: Annotated[str | None, about("accepted; reasoning is told as it is")] = None


class TextOptions(Struct, frozen=True, kw_only=True):
    format: Annotated[
        dict[str, Any] | None,
        unbuilt(
            'a JSON schema that the output keeps to; {"type": "text"} is taken',
            **typed_fields("text", "json_object", "json_schema"),
        ),
    ] = None
    verbosity: Annotated[str | None, about("given to the chat template")] = None


class ResponsesBody(SamplingFields, frozen=True, kw_only=True):
    """/v1/responses."""

    input: Annotated[
        Any, about("the user's text, or items: messages, function calls and their outputs, reasoning", **INPUT)
    ]
    instructions: Annotated[str | None, about("the system turn; not carried over to a next response")] = None
    previous_response_id: Annotated[str | None, about("the chat goes on where that stored response ended")] = None
    store: Annotated[bool | None, about("whether it can be asked for again and continued; true if it is absent")] = None
    max_output_tokens: Annotated[Any, sampled("max_new_tokens", "to the context's end if it is absent")] = None
    tools: Annotated[list[ResponseTool] | None, about("functions that the model may call", items=NAMED)] = None
    tool_choice: Annotated[
        Any, about("`auto` or `none`; `required` and a named function are not built yet", **TOOL_CHOICE)
    ] = None
    parallel_tool_calls: Annotated[bool | None, about("false: nothing is told from a second call on")] = None
    reasoning: Annotated[ReasoningOptions | None, about("`effort`")] = None
    text: Annotated[TextOptions | None, about("`format` and `verbosity`")] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_CHAT_TOP)] | None,
        about("log-probabilities of this many best tokens at each place"),
    ] = None
    include: Annotated[
        list[str] | None, about("`message.output_text.logprobs`: log-probabilities; others are not served and not told")
    ] = None
    metadata: Annotated[dict[str, Any] | None, about("comes back with the response")] = None
    user: Annotated[str | None, about("accepted; nothing is done with it")] = None
    truncation: Annotated[
        str | None, about("`disabled`: what does not fit the context is refused", **one_of("disabled", "auto"))
    ] = None
    stop: Annotated[Any, sampled("stop")] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, about("given to the chat template")] = None
    return_hidden_states: Annotated[
        bool | str | None, unbuilt("hidden states; completions tell them", enum=HIDDEN_STATES)
    ] = None
    background: Annotated[bool | None, unbuilt("an answer to ask for later")] = None
    conversation: Annotated[str | dict[str, Any] | None, unbuilt("OpenAI's conversations")] = None
    prompt: Annotated[dict[str, Any] | None, unbuilt("OpenAI's stored prompts")] = None


UNBUILT: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "return_hidden_states": (False,),
    "conversation": (),
    "prompt": (),
    "truncation": ("disabled",),
}
