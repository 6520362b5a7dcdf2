"""The body of /v1/responses and the items of its input. Only shapes; responses_chat.py makes a chat of items."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ramet.ipc.params import about
from ramet.runtime.intake.fields import Text, unbuilt
from ramet.runtime.intake.limits import MAX_CHAT_TOP, MAX_TURNS
from ramet.runtime.intake.messages import (
    Function,
    InputTextPart,
    Media,
    OutputTextPart,
    ParallelCalls,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolChoice,
)
from ramet.runtime.intake.specs import Hidden, SamplingFields, sampled
from ramet.runtime.server.openai.types import ResponseFormat

Parts = list[InputTextPart | OutputTextPart | TextPart | ReasoningPart | RefusalPart | Media]


class Item(Struct, frozen=True, tag_field="type"):
    """One without a type is a message."""


class InputMessage(Item, frozen=True, tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts


class FunctionCall(Item, frozen=True, tag="function_call"):
    call_id: str
    name: Text
    arguments: str


class FunctionOutput(Item, frozen=True, tag="function_call_output"):
    call_id: str
    output: str | Parts


class Reasoning(Item, frozen=True, tag="reasoning"):
    content: Parts | None = None


InputItem = InputMessage | FunctionCall | FunctionOutput | Reasoning


class ResponseTool(Function, frozen=True, kw_only=True):
    type: Annotated[Literal["function"], about("OpenAI's own tools run on its servers alone")]


class ReasoningOptions(Struct, frozen=True, kw_only=True):
    effort: Annotated[str | None, about("given to the chat template, with `enable_thinking` (false for `none`)")] = None
    summary: Annotated[str | None, about("accepted; reasoning is returned as it is")] = None


class TextOptions(Struct, frozen=True, kw_only=True):
    format: ResponseFormat = None
    verbosity: Annotated[str | None, about("given to the chat template")] = None


class ResponsesBody(SamplingFields, frozen=True, kw_only=True):
    """/v1/responses."""

    input: Annotated[
        str | Annotated[list[InputItem], Meta(min_length=1, max_length=MAX_TURNS)],
        about(
            "the user's text, or items: messages (which may leave their type out), calls and their outputs, reasoning"
        ),
    ]
    instructions: Annotated[str | None, about("the system turn; not carried over to a next response")] = None
    previous_response_id: Annotated[str | None, about("the chat goes on where that stored response ended")] = None
    store: Annotated[bool | None, about("whether it can be asked for again and continued; true if it is absent")] = None
    max_output_tokens: Annotated[Any, sampled("max_new_tokens", "to the context's end if it is absent")] = None
    tools: Annotated[list[ResponseTool] | None, about("functions that the model may call")] = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: ParallelCalls = None
    reasoning: Annotated[ReasoningOptions | None, about("`effort`")] = None
    text: Annotated[TextOptions | None, about("`format` and `verbosity`")] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_CHAT_TOP)] | None,
        about("log-probabilities of this many best tokens at each place"),
    ] = None
    include: Annotated[
        list[str] | None, about("`message.output_text.logprobs`: log-probabilities; others are ignored")
    ] = None
    metadata: Annotated[dict[str, Any] | None, about("comes back with the response")] = None
    user: Annotated[str | None, about("accepted; nothing is done with it")] = None
    truncation: Annotated[
        Literal["disabled", "auto"] | None,
        unbuilt("leaving out what does not fit the context; `disabled` is taken", neutral=("disabled",)),
    ] = None
    stop: Annotated[Any, sampled("stop")] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, about("given to the chat template")] = None
    return_hidden_states: Annotated[
        Hidden | None, unbuilt("hidden states; completions return them", neutral=(False,))
    ] = None
    background: Annotated[bool | None, unbuilt("an answer to ask for later", neutral=(False,))] = None
    conversation: Annotated[str | dict[str, Any] | None, unbuilt("OpenAI's conversations")] = None
    prompt: Annotated[dict[str, Any] | None, unbuilt("OpenAI's stored prompts")] = None
