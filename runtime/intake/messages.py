"""The types of a chat as OpenAI's clients write it, to check with: templates get what the client wrote."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from ramet.ipc.params import about
from ramet.runtime.intake.body import Checked, UnbuiltType
from ramet.runtime.intake.fields import Text, ToolName, named, unbuilt
from ramet.runtime.text.chat_messages import REASONING_NAMES, ROLES

ROLE = named(
    f"one of {', '.join(ROLES)}, or a role of this model's chat template",
    description="or a role of the model's own chat template",
    extra_json_schema={"enum": list(ROLES)},
)


class ContentPart(Struct, frozen=True, tag_field="type"):
    """A piece of a message's content."""


class TextPart(ContentPart, frozen=True, tag="text"):
    text: str


class InputTextPart(TextPart, frozen=True, tag="input_text"):
    pass


class OutputTextPart(TextPart, frozen=True, tag="output_text"):
    pass


class ReasoningPart(TextPart, frozen=True, tag="reasoning_text"):
    pass


class RefusalPart(ContentPart, frozen=True, tag="refusal"):
    refusal: str


# -- media: runtime/intake/media.py reads them from what the client wrote ----------------------------------------------

SOURCE = named("a URL, a data URI, base64 or a path", min_length=1)
Written = Annotated[str, SOURCE]
Detail = Literal["auto", "low", "high"] | None
Rate = Annotated[float, named("a number in (0, 1000]", gt=0, le=1000)] | None
Frames = Annotated[int, named("an integer in [1, 65536]", ge=1, le=1 << 16)] | None
Pixels = Annotated[int, named("an integer in [1, 2^30]", ge=1, le=1 << 30)] | None

Tiles = Annotated[int, named("an integer in [1, 64]", ge=1, le=64)] | None


class PictureOptions(Struct, frozen=True, kw_only=True):
    """How it is made smaller, as far as the model's processor does."""

    detail: Detail = None
    min_pixels: Pixels = None
    max_pixels: Pixels = None
    min_dynamic_patch: Tiles = None
    max_dynamic_patch: Tiles = None


class FilmOptions(Struct, frozen=True, kw_only=True):
    """Which of its frames are taken."""

    fps: Rate = None
    num_frames: Frames = None
    max_frames: Frames = None
    min_pixels: Pixels = None
    max_pixels: Pixels = None


class ImageUrl(PictureOptions, frozen=True, kw_only=True):
    url: Written


class ImageUrlPart(PictureOptions, ContentPart, frozen=True, kw_only=True, tag="image_url"):
    image_url: Written | ImageUrl


class InputImagePart(PictureOptions, Checked, ContentPart, frozen=True, kw_only=True, tag="input_image"):
    image_url: Written | ImageUrl | None = None
    file_id: Annotated[str | None, unbuilt("a file that was uploaded before", hint="send image_url")] = None


class ImagePart(PictureOptions, ContentPart, frozen=True, kw_only=True, tag="image"):
    """One of its fields; so in VideoPart and AudioPart."""

    image: Written | None = None
    url: Written | None = None
    path: Written | None = None
    base64: Written | None = None


class VideoUrl(FilmOptions, frozen=True, kw_only=True):
    url: Written


class VideoUrlPart(FilmOptions, ContentPart, frozen=True, kw_only=True, tag="video_url"):
    video_url: Written | VideoUrl


class VideoPart(FilmOptions, ContentPart, frozen=True, kw_only=True, tag="video"):
    video: Written | None = None
    url: Written | None = None
    path: Written | None = None
    base64: Written | None = None


class AudioUrl(Struct, frozen=True, kw_only=True):
    url: Written


class AudioUrlPart(ContentPart, frozen=True, kw_only=True, tag="audio_url"):
    audio_url: Written | AudioUrl


class InputAudio(Struct, frozen=True, kw_only=True):
    data: Written
    format: Annotated[str | None, about("wav, mp3, flac, ...: the sound itself says what it is")] = None


class InputAudioPart(ContentPart, frozen=True, kw_only=True, tag="input_audio"):
    input_audio: InputAudio


class AudioPart(ContentPart, frozen=True, kw_only=True, tag="audio"):
    audio: Written | None = None
    url: Written | None = None
    path: Written | None = None
    base64: Written | None = None


MediaPart = (
    ImageUrlPart | InputImagePart | ImagePart | VideoUrlPart | VideoPart | AudioUrlPart | InputAudioPart | AudioPart
)
FILES = ("file", "input_file", "document")
if TYPE_CHECKING:
    Files = UnbuiltType
else:
    _NAMES = {tag: tag.title().replace("_", "") + "Part" for tag in FILES}
    _PARTS = tuple(defstruct(name, (), bases=(UnbuiltType,), tag=tag, frozen=True) for tag, name in _NAMES.items())
    Files = Annotated[Union[_PARTS], unbuilt("files")]  # noqa: UP007
ChatPart = TextPart | InputTextPart | OutputTextPart | RefusalPart | MediaPart | Files
ItemPart = InputTextPart | OutputTextPart | TextPart | ReasoningPart | RefusalPart | MediaPart | Files  # of responses


class NamedCall(Struct, frozen=True):
    name: Text
    arguments: Annotated[str | dict[str, Any] | None, about("JSON of an object, or the object")] = None


class NamedInput(Struct, frozen=True):
    name: Text
    input: str


class Call(Struct, frozen=True):
    """A call of a function or of a custom tool."""

    function: NamedCall | UnsetType = UNSET
    custom: NamedInput | UnsetType = UNSET
    id: str | None = None
    type: Literal["function", "custom"] | None = None

    def __post_init__(self) -> None:
        if self.function is UNSET and self.custom is UNSET:
            raise ValueError("Object missing required field `function`")  # worded as msgspec's own error


_CALLS = {"anyOf": [{"required": [name]} for name in ("function", "custom")]}


class Message(Struct, frozen=True):
    """Only an assistant message with calls or reasoning may have no content."""

    role: Annotated[str, ROLE]
    content: str | list[ChatPart] | None = None
    name: str | None = None
    tool_calls: list[Annotated[Call, Meta(extra_json_schema=_CALLS)]] | None = None
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

Effort = Annotated[str | None, about("given to the chat template, with `enable_thinking` (false for `none`)")]
Verbosity = Annotated[str | None, about("given to the chat template")]
TemplateArguments = Annotated[dict[str, Any] | None, about("given to the chat template")]
Documents = Annotated[list[dict[str, Any]] | None, about("given to the chat template")]
BeginsReply = Annotated[bool | None, about("false: the prompt does not begin the reply")]
GoesOn = Annotated[bool | None, about("the output goes on where the last message ends")]


class TemplateFields(Struct, frozen=True, kw_only=True):
    """What a prompt depends on beside messages and tools."""

    reasoning_effort: Effort = None
    verbosity: Verbosity = None
    chat_template_kwargs: TemplateArguments = None
    documents: Documents = None
    add_generation_prompt: BeginsReply = None
    continue_final_message: GoesOn = None


class ChatFields(TemplateFields, frozen=True, kw_only=True):
    """A chat by itself, as `LLM` takes it."""

    messages: Messages
    tools: list[Tool | None] | None = None
    tool_choice: ToolChoice = None
