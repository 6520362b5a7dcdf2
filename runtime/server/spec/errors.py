"""What is told of what went wrong, in each client's shape. Decides nothing, as shapes.py."""

from typing import Literal

from msgspec import UNSET, UnsetType

from ramet.runtime.server.spec.shapes import Shape


class StreamMessage(Shape):
    message: str
    type: str
    code: int
    retryable: bool


class StreamError(Shape):
    """The last event but [DONE] of a stream that broke off."""

    error: StreamMessage


class NativeMessage(Shape):
    message: str


class NativeError(Shape):
    error: NativeMessage


class OpenAIMessage(Shape):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Shape):
    error: OpenAIMessage


class OpenAIStreamMessage(OpenAIMessage):
    retryable: bool


class OpenAIStreamError(Shape):
    """The same in OpenAI's shape."""

    error: OpenAIStreamMessage


class AnthropicDetails(Shape):
    error_code: str


class AnthropicMessage(Shape):
    type: str
    message: str
    details: AnthropicDetails | UnsetType = UNSET


class AnthropicError(Shape):
    type: Literal["error"]
    error: AnthropicMessage
