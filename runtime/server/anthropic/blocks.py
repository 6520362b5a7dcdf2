"""The content blocks of Anthropic's turns. Only shapes."""

from typing import TYPE_CHECKING, Annotated, Any, Union

from msgspec import Meta, Struct, defstruct

from ramet.runtime.intake.body import UnbuiltType
from ramet.runtime.intake.fields import Text
from ramet.runtime.intake.messages import Files, Written


class Block(Struct, frozen=True, tag_field="type"):
    """A piece of a turn's content."""


class TextContent(Block, frozen=True, tag="text"):
    text: str


class ThinkingContent(Block, frozen=True, tag="thinking"):
    thinking: str


class RedactedThinking(Block, frozen=True, tag="redacted_thinking"):
    """A thought whose text was never sent in the clear."""


class ToolUse(Block, frozen=True, tag="tool_use"):
    id: str
    name: Text
    input: dict[str, Any]


# -- images and texts --------------------------------------------------------------------------------------------------


class Source(Struct, frozen=True, tag_field="type"):
    """Where an image is."""


class Base64Source(Source, frozen=True, kw_only=True, tag="base64"):
    data: Written
    media_type: Annotated[str, Meta(pattern="^image/[A-Za-z0-9.+-]{1,64}$")]


class UrlSource(Source, frozen=True, tag="url"):
    url: Written


class FileSource(UnbuiltType, frozen=True, tag="file"):
    pass


class ImageContent(Block, frozen=True, tag="image"):
    source: Base64Source | UrlSource | FileSource

    @property
    def written(self) -> str:
        match self.source:
            case Base64Source(data=data, media_type=media_type):
                return f"data:{media_type};base64,{data}"
            case UrlSource(url):
                return url
        raise AssertionError("a source that is refused was decoded")


TextContents = str | list[TextContent | Files]


class SearchResult(Block, frozen=True, tag="search_result"):
    """A text that the client found."""

    content: list[TextContent]
    title: str | None = None
    source: str | None = None

    @property
    def text(self) -> str:
        head = [line for line in (self.title, self.source) if line]
        return "\n".join([*head, "".join(part.text for part in self.content)])


class ToolReference(Block, frozen=True, tag="tool_reference"):
    """The name of a tool that a search has found."""


class ToolResult(Block, frozen=True, tag="tool_result"):
    tool_use_id: str
    content: str | list[TextContent | ImageContent | SearchResult | ToolReference | Files] | None = None
    is_error: bool | None = None


# -- tools that Anthropic's servers ran: calls like any other, where a block has their result --------------------------


class ServerToolUse(ToolUse, frozen=True, tag="server_tool_use"):
    """Its result is a block of the same turn."""


class McpToolUse(ToolUse, frozen=True, tag="mcp_tool_use"):
    pass


class McpToolResult(Block, frozen=True, tag="mcp_tool_result"):
    tool_use_id: str
    content: str | list[TextContent] | None = None
    is_error: bool | None = None


class CodeResult(Block, frozen=True, tag="code_execution_tool_result"):
    tool_use_id: str
    content: dict[str, Any]


class BashResult(CodeResult, frozen=True, tag="bash_code_execution_tool_result"):
    pass


class EditorResult(CodeResult, frozen=True, tag="text_editor_code_execution_tool_result"):
    pass


class Compaction(Block, frozen=True, tag="compaction"):
    """A summary that replaces the turns of a chat."""

    content: str | None = None


class PassedOverBlock(Block, frozen=True):
    """A block without anything that a model could read: the results of a search are encrypted."""


PASSED_OVER = ("web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result", "container_upload")
if TYPE_CHECKING:
    Others = PassedOverBlock
else:
    Others = Union[  # noqa: UP007
        tuple(
            defstruct(tag.title().replace("_", ""), (), bases=(PassedOverBlock,), tag=tag, frozen=True)
            for tag in PASSED_OVER
        )
    ]
ServerResult = McpToolResult | CodeResult | BashResult | EditorResult
ServerBlock = ServerToolUse | McpToolUse | ServerResult | Compaction | Others


# -- turns -------------------------------------------------------------------------------------------------------------


class Turn(Struct, frozen=True, tag_field="role"):
    """What one side said."""


class UserTurn(Turn, frozen=True, tag="user"):
    content: str | list[TextContent | ImageContent | ToolResult | SearchResult | Others | Files]


class AssistantTurn(Turn, frozen=True, tag="assistant"):
    content: str | list[TextContent | ToolUse | ThinkingContent | RedactedThinking | ServerBlock]


class SystemTurn(Turn, frozen=True, tag="system"):
    content: TextContents


AnyTurn = UserTurn | AssistantTurn | SystemTurn
