"""POST /v1/messages and /v1/messages/count_tokens.

A message is a row of thinking, text and tool_use blocks; in a stream one of them is open at a time.
"""

from functools import partial
from typing import Any

from aiohttp import web
from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from ramet.ipc.messages import ID_BYTES, Finish
from ramet.ipc.params import shown
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.exact_json import loads
from ramet.runtime.intake.body import convert as as_struct
from ramet.runtime.intake.chat import EncodedChat, write_chat
from ramet.runtime.intake.parsers.tools import CallStart, Part, Thought
from ramet.runtime.intake.reading import OutputReader
from ramet.runtime.intake.reply import weight_spans
from ramet.runtime.intake.tool_choice import CallRules
from ramet.runtime.server.anthropic import replies
from ramet.runtime.server.anthropic.chat import CountBody, MessagesBody, functions_alone, read_chat
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.asked import Asked, chat_ids, read_asked, read_sampling, send_chat, with_chat
from ramet.runtime.server.http.exchange import read_object, respond, written
from ramet.runtime.server.http.items import Items
from ramet.runtime.server.http.request_id import RequestId
from ramet.runtime.server.http.service import Served, Service, read_model


async def messages(service: Service, request: web.Request) -> web.StreamResponse:
    """Anthropic's messages with tools and thinking, whole or as a stream."""
    streams, silent, asked, (chat, calls) = await read_object(request, partial(_read, service.served))
    with service.client.open(streaming=streams, rid=asked.rid) as submission:
        (reader,) = await send_chat(service, submission, asked, chat, calls)
        (sequence,) = submission.sequences
        blocks = MessageBlocks(sequence, reader, asked, silent)
        if streams:
            return await sse.stream(request, submission, [blocks.events], done=b"")
        await submission.finished()
    await blocks.read_whole()
    usage = replies.usage_of(sequence)
    message = replies.AnthropicReply(
        id=asked.new_id, model=asked.model, content=blocks.closed, usage=usage, **asdict(blocks.ending)
    )
    return respond(message)


def _read(
    served: Served, request_id: RequestId, written: dict[str, Any]
) -> tuple[bool, bool, Asked, tuple[EncodedChat, CallRules]]:
    """Whether the reply is a stream and whether thoughts are left out, what is asked for, and the chat with the tools
    that may be called. Raises ClientError.
    """
    body = as_struct(functions_alone(written), MessagesBody)
    said = convert(body, CountBody, from_attributes=True)
    asked = read_asked(served, request_id, body, "msg_", read_sampling(served, body, n=1))
    if body.max_tokens is None or body.max_tokens == 0:
        raise ClientError("max_tokens", f"is {shown(body.max_tokens)}, must be an integer >= 1")
    silent = said.thinking is not None and said.thinking.display == "omitted"
    chat, calls = read_chat(said, served.style)
    as_written = write_chat(chat, served.limits.media)
    return bool(body.stream), silent, with_chat(asked, chat, calls, served.style), (as_written, calls)


def _read_count(served: Served, _: RequestId, written: dict[str, Any]) -> EncodedChat:
    body = as_struct(functions_alone(written), CountBody)
    read_model(served.names, body.model)
    return write_chat(read_chat(body, served.style)[0], served.limits.media)


async def count_tokens(service: Service, request: web.Request) -> web.Response:
    """How many tokens a chat has as a prompt."""
    chat = await read_object(request, partial(_read_count, service.served))
    return respond(replies.TokenCount(len(await chat_ids(service, chat)) // ID_BYTES))


class MessageBlocks(Items[replies.ContentBlock]):
    """The content of a message, and its stream."""

    def __init__(self, sequence: GeneratedSequence, reader: OutputReader, asked: Asked, silent: bool) -> None:
        super().__init__(sequence, reader, silent)
        self._asked = asked

    @property
    def ending(self) -> replies.Ending:
        finish = self._sequence.finish
        assert finish is not None
        reason, versions = self._reader.reason(finish), weight_spans(self._sequence)
        if reason == "stop" and isinstance(finish.matched, str):
            return replies.Ending("stop_sequence", finish.matched, versions)
        return replies.Ending(_STOP_REASONS.get(reason, "end_turn"), None, versions)

    def _start(self) -> None:
        usage = replace(replies.usage_of(self._sequence), output_tokens=0)
        message = replies.StartedMessage(id=self._asked.new_id, model=self._asked.model, usage=usage)
        self._emit(replies.MessageStart(message))

    def _item(self, first: Part) -> replies.ContentBlock:
        block: replies.ContentBlock = replies.TextBlock("")
        if isinstance(first, Thought):
            block = replies.ThinkingBlock("")
        elif isinstance(first, CallStart):
            block = replies.ToolUseBlock(self._reader.new_call_id(), first.name, {})
        self._emit(replies.BlockStart(len(self.closed), block))
        return block

    def _grew(self, item: replies.ContentBlock, text: str) -> None:
        self._emit(replies.BlockDelta(len(self.closed), _DELTAS[type(item)](text)))

    def _ended(self, item: replies.ContentBlock, text: str, complete: bool) -> replies.ContentBlock:
        self._emit(replies.BlockStop(len(self.closed)))
        return replace(item, input=_input(text)) if isinstance(item, replies.ToolUseBlock) else type(item)(text)

    def _end(self, finish: Finish) -> None:
        self._emit(replies.MessageDelta(self.ending, replies.usage_of(self._sequence)))
        self._emit(replies.MessageStop())


_STOP_REASONS: dict[str, replies.StopReason] = {"tool_calls": "tool_use", "length": "max_tokens"}
_DELTAS: dict[type[Struct], type[Struct]] = {
    replies.TextBlock: replies.TextDelta,
    replies.ThinkingBlock: replies.ThinkingDelta,
    replies.ToolUseBlock: replies.InputDelta,
}


def _input(arguments: str) -> Any:
    """The arguments as an object, as Anthropic's clients declare them, byte for byte; what is no object stays text."""
    arguments = arguments or "{}"
    try:
        is_object = isinstance(loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    return written(arguments.encode()) if is_object else {"_raw": arguments}
