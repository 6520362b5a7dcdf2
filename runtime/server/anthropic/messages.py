"""POST /v1/messages and /v1/messages/count_tokens.

A message is a row of thinking, text and tool_use blocks; in a stream one of them is open at a time.
"""

from typing import Any

import orjson
from aiohttp import web
from msgspec.structs import asdict, replace

from ramet.ipc.messages import ID_BYTES, Finish
from ramet.ipc.params import shown
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.chat import rendered_by
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart
from ramet.runtime.intake.reading import Part, Reader, Thought, read_parts, refuse_aborted
from ramet.runtime.intake.specs import read_params, read_spec
from ramet.runtime.server.anthropic import replies
from ramet.runtime.server.anthropic.chat import read_chat
from ramet.runtime.server.anthropic.types import CountBody, MessagesBody
from ramet.runtime.server.http import problems, sse
from ramet.runtime.server.http.chats import send_chat
from ramet.runtime.server.http.exchange import read_body, respond, set_request_id
from ramet.runtime.server.http.service import Service, check_model


async def messages(service: Service, request: web.Request) -> web.StreamResponse:
    """Anthropic's messages with tools and thinking, whole or as a stream."""
    body = await read_body(request, MessagesBody)
    model = check_model(service, body.model)
    if body.max_tokens is None or body.max_tokens == 0:
        raise ClientError("max_tokens", f"is {shown(body.max_tokens)}, must be an integer >= 1")
    params = read_params(asdict(body), replace(service.defaults, n=1))
    spec = read_spec(body, params, service.args.execute.enable_custom_logit_processor)
    chat, parallel = read_chat(body, service.style)
    message_id = f"msg_{prompts.new_id()}"
    rid = set_request_id(request, message_id, body.rid)
    silent = body.thinking is not None and body.thinking.display == "omitted"
    with service.client.open(streaming=bool(body.stream)) as submission:
        prompt = Prompt(rid, spec, place="messages")
        as_shown = body.skip_special_tokens is not None
        (reader,) = await send_chat(service, submission, prompt, chat, parallel=parallel, as_shown=as_shown)
        (sequence,) = submission.sequences
        if body.stream:
            events = Events(sequence, reader, message_id, model, silent)
            return await sse.stream(request, submission, lambda _: events.new(), failure=_broken, done=b"")
        await submission.finished()
    assert sequence.finish is not None
    refuse_aborted(sequence.finish)
    content = _content(_shown(read_parts(sequence.take()[0], sequence.tail, reader), silent), reader)
    end = _ending(reader, sequence.finish)
    return respond(
        replies.AnthropicReply(
            id=message_id,
            model=model,
            content=content,
            stop_reason=end.stop_reason,
            stop_sequence=end.stop_sequence,
            usage=replies.usage_of(sequence),
        )
    )


async def count_tokens(service: Service, request: web.Request) -> web.Response:
    """How many tokens a chat has as a prompt."""
    body = await read_body(request, CountBody)
    check_model(service, body.model)
    chat, _ = read_chat(body, service.style)
    prompt = await rendered_by(service.client.render, chat)
    return respond(replies.TokenCount(len(prompt.ids) // ID_BYTES))


def _shown(parts: list[Part], silent: bool) -> list[Part]:
    """`silent`: without thoughts."""
    return [part for part in parts if not isinstance(part, Thought)] if silent else parts


def _content(parts: list[Part], reader: Reader) -> list[replies.ContentBlock]:
    """The blocks of a whole message, which are those of its stream."""
    blocks: list[replies.ContentBlock] = []
    arguments = ""
    for part in parts:
        match part, blocks[-1] if blocks else None:
            case str(text), replies.TextBlock() as block:
                blocks[-1] = replies.TextBlock(block.text + text)
            case str(text), _:
                blocks.append(replies.TextBlock(text))
            case Thought(text), replies.ThinkingBlock() as block:
                blocks[-1] = replies.ThinkingBlock(block.thinking + text)
            case Thought(text), _:
                blocks.append(replies.ThinkingBlock(text))
            case CallStart(name), _:
                arguments = ""
                blocks.append(replies.ToolUseBlock(reader.new_call_id(), name, {}))
            case CallArguments(text), replies.ToolUseBlock() as block:
                arguments += text
                blocks[-1] = replace(block, input=_input(arguments))
    return blocks or [replies.TextBlock("")]


def _input(arguments: str) -> dict[str, Any]:
    """The arguments as an object, as Anthropic's clients declare them; what is no object stays text."""
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"_raw": arguments}


def _ending(reader: Reader, finish: Finish) -> replies.Ending:
    match reader.reason(finish):
        case "tool_calls":
            return replies.Ending("tool_use", None)
        case "length":
            return replies.Ending("max_tokens", None)
        case "stop" if isinstance(finish.matched, str):
            return replies.Ending("stop_sequence", finish.matched)
        case _:
            return replies.Ending("end_turn", None)


def _broken(error: RametError) -> bytes:
    return sse.named(problems.anthropic(error))


class Events:
    """The stream of one message."""

    def __init__(self, sequence: Sequence, reader: Reader, message_id: str, model: str, silent: bool) -> None:
        self._sequence, self._reader, self._id, self._model = sequence, reader, message_id, model
        self._silent = silent
        self._begun = False
        self._index = -1  # of the newest block
        self._open: type[replies.ContentBlock] | None = None  # the kind of the block that is open

    def new(self) -> bytes:
        sequence, reader = self._sequence, self._reader
        texts, _ = sequence.take()
        events = b"" if self._begun else self._start()
        events += b"".join([self._part(part) for text in texts for part in _shown(reader.push(text), self._silent)])
        if sequence.finish is None:
            return events
        refuse_aborted(sequence.finish)
        events += b"".join([self._part(part) for part in _shown(reader.close(sequence.tail), self._silent)])
        if self._index < 0:
            events += self._begin(replies.TextBlock(""))
        end = replies.MessageDelta(_ending(reader, sequence.finish), replies.usage_of(sequence))
        return events + self._close() + sse.named(end) + sse.named(replies.MessageStop())

    def _start(self) -> bytes:
        self._begun = True
        usage = replace(replies.usage_of(self._sequence), output_tokens=0)
        return sse.named(replies.MessageStart(replies.StartedMessage(id=self._id, model=self._model, usage=usage)))

    def _part(self, part: Part) -> bytes:
        match part:
            case str():
                return self._within(replies.TextBlock("")) + self._delta(replies.TextDelta(part))
            case Thought(text):
                return self._within(replies.ThinkingBlock("")) + self._delta(replies.ThinkingDelta(text))
            case CallStart(name):
                return self._begin(replies.ToolUseBlock(self._reader.new_call_id(), name, {}))
            case CallArguments(text):
                return self._delta(replies.InputDelta(text))

    def _within(self, block: replies.ContentBlock) -> bytes:
        """Begins this block unless one of its kind is open."""
        return b"" if self._open is type(block) else self._begin(block)

    def _begin(self, block: replies.ContentBlock) -> bytes:
        closed = self._close()
        self._index, self._open = self._index + 1, type(block)
        return closed + sse.named(replies.BlockStart(self._index, block))

    def _delta(self, delta: replies.BlockPart) -> bytes:
        return sse.named(replies.BlockDelta(self._index, delta))

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return sse.named(replies.BlockStop(self._index))
