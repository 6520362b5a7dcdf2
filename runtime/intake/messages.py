"""The types of a chat as OpenAI's clients write it, to check with: templates get what the client wrote."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from msgspec import Meta, Struct, defstruct

from ramet.ipc.params import about
from ramet.runtime.intake.body import Refused
from ramet.runtime.intake.fields import Text, ToolName, named, unbuilt
from ramet.runtime.text.chat_messages import REASONING_NAMES, ROLES

ROLE = named(
    f"one of {', '.join(ROLES)}, or a role of this model's chat template",
    description="or a role of the model's own chat template",
    extra_json_schema={"enum": list(ROLES)},
)


class Part(Struct, frozen=True, tag_field="type"):
    """A piece of a message's content."""


class TextPart(Part, frozen=True, tag="text"):
    text: str


class InputTextPart(TextPart, frozen=True, tag="input_text"):
    pass


class OutputTextPart(TextPart, frozen=True, tag="output_text"):
    pass


class ReasoningPart(TextPart, frozen=True, tag="reasoning_text"):
    pass


class RefusalPart(Part, frozen=True, tag="refusal"):
    refusal: str


MEDIA = ("image_url", "image", "input_image", "input_audio", "video_url", "file", "input_file", "document")
if TYPE_CHECKING:
    Media = Refused
else:
    _NAMES = {tag: tag.title().replace("_", "") + "Part" for tag in MEDIA}
    _PARTS = tuple(defstruct(name, (), bases=(Refused,), tag=tag, frozen=True) for tag, name in _NAMES.items())
    Media = Annotated[Union[_PARTS], unbuilt("pictures, sound, films and files")]  # noqa: UP007
ChatPart = TextPart | InputTextPart | OutputTextPart | RefusalPart | Media
ItemPart = InputTextPart | OutputTextPart | TextPart | ReasoningPart | RefusalPart | Media  # of responses


class NamedCall(Struct, frozen=True):
    name: Text
    arguments: Annotated[str | dict[str, Any] | None, about("JSON of an object, or the object")] = None


class Call(Struct, frozen=True):
    function: NamedCall
    id: str | None = None
    type: Literal["function"] | None = None


class Message(Struct, frozen=True):
    """Only an assistant message with calls or reasoning may have no content."""

    role: Annotated[str, ROLE]
    content: str | list[ChatPart] | None = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    refusal: str | None = None
    function_call: NamedCall | None = None


# text/chat_messages.py refuses a message without any of these: what it may leave out depends on its role
_SAYS = {
    "anyOf": [{"required": [name]} for name in ("content", "tool_calls", "function_call", *REASONING_NAMES, "refusal")]
}
Messages = Annotated[
    list[Annotated[Message, Meta(extra_json_schema=_SAYS)]], Meta(description="the chat", min_length=1)
]


class Function(Struct, frozen=True, kw_only=True):
    name: ToolName
    description: str | None = None
    parameters: Annotated[dict[str, Any] | None, about("a JSON schema of the arguments")] = None
    strict: Annotated[bool | None, about("true: a call's arguments keep to the schema, also where none is forced")] = (
        None
    )


class Tool(Struct, frozen=True, kw_only=True):
    function: Function
    type: Literal["function"] = "function"


class AllowedTools(Struct, frozen=True, kw_only=True):
    """Each tool with its name, or with a function that has it."""

    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


class NamedFunction(Struct, frozen=True):
    name: Text


class NamedChoice(Struct, frozen=True, kw_only=True):
    """What is allowed stands in `allowed_tools`, or beside the type; so does the function's name."""

    type: Literal["function", "allowed_tools"]
    function: NamedFunction | None = None
    name: str | None = None
    allowed_tools: AllowedTools | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, Any]] | None = None


ToolChoice = Annotated[
    Literal["auto", "none", "required"] | NamedChoice | None,
    about(
        "`auto`, `none`, `required` (at least one call), a function (one call of it), or the tools that are allowed: "
        "a call that is forced keeps to the schema of its tool"
    ),
]
ParallelCalls = Annotated[bool | None, about("false: one call at most; nothing is returned from a second one on")]


class TemplateFields(Struct, frozen=True, kw_only=True):
    """What a prompt depends on beside messages and tools."""

    reasoning_effort: Annotated[
        str | None, about("given to the chat template, with `enable_thinking` (false for `none`)")
    ] = None
    verbosity: Annotated[str | None, about("given to the chat template")] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, about("given to the chat template")] = None
    documents: Annotated[list[dict[str, Any]] | None, about("given to the chat template")] = None
    add_generation_prompt: Annotated[bool | None, about("false: the prompt does not begin the reply")] = None
    continue_final_message: Annotated[bool | None, about("the output goes on where the last message ends")] = None


class ChatFields(TemplateFields, frozen=True, kw_only=True):
    """A chat by itself, as `LLM` takes it."""

    messages: Messages
    tools: list[Tool] | None = None
    tool_choice: ToolChoice = None
