"""POST /v1/messages and /v1/messages/count_tokens.

Decides how a reply and its events look: thinking, text and tool_use blocks, one open at a time.
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
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import prepare, rendered_by
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart
from ramet.runtime.intake.reading import Part, Reader, Thought, read_parts, refuse_aborted
from ramet.runtime.intake.sampling import read_params
from ramet.runtime.intake.specs import read_spec
from ramet.runtime.server.anthropic.chat import read_chat
from ramet.runtime.server.anthropic.types import CountBody, MessagesBody
from ramet.runtime.server.http import problems, request_ids, sse
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.request_body import read_object
from ramet.runtime.server.http.service import Service

SIGNATURE = ""  # of thinking: nothing here has to be proved later


async def messages(service: Service, request: web.Request) -> web.StreamResponse:
    """Anthropic's messages with tools and thinking, whole or as a stream."""
    body = convert(await read_object(request), MessagesBody)
    model = check_model(service, body.model)
    if body.max_tokens is None or body.max_tokens == 0:
        raise ClientError("max_tokens", f"is {shown(body.max_tokens)}, must be an integer >= 1")
    params = read_params(asdict(body), replace(service.defaults, n=1))
    spec = read_spec(body, params, service.args.execute.enable_custom_logit_processor)
    chat, parallel = read_chat(body, service.style)
    message_id = f"msg_{prompts.new_id()}"
    rid = request_ids.of_request(request, message_id, body.rid)
    silent = body.thinking is not None and body.thinking.display == "omitted"
    with service.client.open(streaming=bool(body.stream)) as submission:
        shown_as = body.skip_special_tokens is not None
        ready = await submission.during(
            prepare(service.client.render, service.style, chat, spec, parallel=parallel, as_shown=shown_as)
        )
        item = Prompt(rid, ready.spec, ids=ready.ids, place="messages")
        service.client.send([item], submission)
        (sequence,) = submission.sequences
        reader = Reader(ready.reading)
        if body.stream:
            events = Events(sequence, reader, message_id, model, silent)
            return await sse.stream(request, submission, lambda _: events.new(), failure=_failure, done=b"")
        await submission.finished()
    assert sequence.finish is not None
    refuse_aborted(sequence.finish)
    return problems.reply(
        {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": _content(_told(read_parts(sequence.take()[0], sequence.tail, reader), silent), reader),
            **_ending(reader, sequence.finish),
            "usage": _usage(sequence),
        }
    )


async def count_tokens(service: Service, request: web.Request) -> web.Response:
    """How many tokens a chat has as a prompt."""
    body = convert(await read_object(request), CountBody)
    check_model(service, body.model)
    chat, _ = read_chat(body, service.style)
    prompt = await rendered_by(service.client.render, chat)
    return problems.reply({"input_tokens": len(prompt.ids) // ID_BYTES})


def _told(parts: list[Part], silent: bool) -> list[Part]:
    """`silent`: thoughts are not told."""
    return [part for part in parts if not isinstance(part, Thought)] if silent else parts


def _content(parts: list[Part], reader: Reader) -> list[dict[str, Any]]:
    """The blocks of a whole message, which are those of its stream."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        kind = blocks[-1]["type"] if blocks else ""
        match part:
            case str():
                if kind != "text":
                    blocks.append({"type": "text", "text": ""})
                blocks[-1]["text"] += part
            case Thought(text):
                if kind != "thinking":
                    blocks.append({"type": "thinking", "thinking": "", "signature": SIGNATURE})
                blocks[-1]["thinking"] += text
            case CallStart(name):
                blocks.append({"type": "tool_use", "id": reader.new_call_id(), "name": name, "input": ""})
            case CallArguments(text):
                blocks[-1]["input"] += text
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = _input(block["input"])
    return blocks or [{"type": "text", "text": ""}]


def _input(arguments: str) -> Any:
    """The arguments as an object, as Anthropic's clients declare them; what the model broke off is told as it is."""
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"_raw": arguments}


def _ending(reader: Reader, finish: Finish) -> dict[str, Any]:
    matched = finish.matched if isinstance(finish.matched, str) else None
    match reader.reason(finish):
        case "tool_calls":
            reason = "tool_use"
        case "length":
            reason = "max_tokens"
        case "stop" if matched is not None:
            reason = "stop_sequence"
        case _:
            reason = "end_turn"
    return {"stop_reason": reason, "stop_sequence": matched if reason == "stop_sequence" else None}


def _usage(sequence: Sequence) -> dict[str, Any]:
    """Input tokens are those that were computed, beside those that were read from the cache."""
    return {
        "input_tokens": sequence.num_prompt - sequence.num_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": sequence.num_cached,
        "output_tokens": sequence.num_generated,
    }


def _failure(error: RametError) -> bytes:
    body = problems.anthropic_body(error)
    return sse.event("error", {"error": body["error"]})


class Events:
    """The stream of one message."""

    def __init__(self, sequence: Sequence, reader: Reader, message_id: str, model: str, silent: bool) -> None:
        self._sequence, self._reader, self._id, self._model = sequence, reader, message_id, model
        self._silent = silent  # thoughts are not told
        self._begun = False
        self._index, self._kind = -1, ""  # of the block that is open; "": none is

    def new(self) -> bytes:
        sequence, reader = self._sequence, self._reader
        texts, _ = sequence.take()
        told = b"" if self._begun else self._start()
        told += b"".join([self._part(part) for text in texts for part in _told(reader.push(text), self._silent)])
        if sequence.finish is None:
            return told
        refuse_aborted(sequence.finish)
        told += b"".join([self._part(part) for part in _told(reader.close(sequence.tail), self._silent)])
        if self._index < 0:
            told += self._open("text", {"type": "text", "text": ""})
        told += self._close()
        ending = {"delta": _ending(reader, sequence.finish), "usage": _usage(sequence)}
        return told + sse.event("message_delta", ending) + sse.event("message_stop", {})

    def _start(self) -> bytes:
        self._begun = True
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(self._sequence) | {"output_tokens": 0},
        }
        return sse.event("message_start", {"message": message})

    def _part(self, part: Part) -> bytes:
        match part:
            case str():
                return self._within("text", {"type": "text", "text": ""}) + self._delta("text_delta", "text", part)
            case Thought(text):
                block = {"type": "thinking", "thinking": "", "signature": SIGNATURE}
                return self._within("thinking", block) + self._delta("thinking_delta", "thinking", text)
            case CallStart(name):
                call = {"type": "tool_use", "id": self._reader.new_call_id(), "name": name, "input": {}}
                return self._close() + self._open("tool_use", call)
            case CallArguments(text):
                return self._delta("input_json_delta", "partial_json", text)

    def _within(self, kind: str, block: dict[str, Any]) -> bytes:
        """What has to be told so that a block of this kind is open."""
        return b"" if self._kind == kind else self._close() + self._open(kind, block)

    def _open(self, kind: str, block: dict[str, Any]) -> bytes:
        self._index, self._kind = self._index + 1, kind
        return sse.event("content_block_start", {"index": self._index, "content_block": block})

    def _delta(self, kind: str, key: str, text: str) -> bytes:
        return sse.event("content_block_delta", {"index": self._index, "delta": {"type": kind, key: text}})

    def _close(self) -> bytes:
        if not self._kind:
            return b""
        self._kind = ""
        return sse.event("content_block_stop", {"index": self._index})
