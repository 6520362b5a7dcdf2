"""POST /v1/chat/completions.

Decides how the body becomes a chat with its parameters, and how choices and chunks look. A token whose text passes
unread is one event, with everything around it made once per choice.
"""

import time
from typing import Any

import orjson
from aiohttp import web
from msgspec.structs import asdict, replace

from ramet.ipc.messages import Finish
from ramet.ipc.params import MAX_NEW_TOKENS
from ramet.ipc.spec import LogprobSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import callable_tools, chat_of, prepare, refuse_without_parser
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart
from ramet.runtime.intake.reading import Call, Part, Reader, Thought, joined, read_parts
from ramet.runtime.intake.sampling import read_params
from ramet.runtime.intake.specs import read_spec
from ramet.runtime.server.http import problems, request_ids, sse
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.request_body import read_object
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.chat_types import ChatBody
from ramet.runtime.server.openai.logprobs import chat_logprobs, whole_chat_logprobs
from ramet.runtime.server.openai.types import ending, usage

TO_THE_END = MAX_NEW_TOKENS  # of the context, to which outputs are cut


async def chat_completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's chat completions with tools and reasoning, whole or as a stream."""
    written = await read_object(request)
    body = convert(written, ChatBody)
    model = check_model(service, body.model)
    names = callable_tools(body.tool_choice, [tool.function.name for tool in body.tools or ()])
    refuse_without_parser(names, service.style)
    params = read_params(asdict(body), replace(service.defaults, max_new_tokens=TO_THE_END))
    processors_on = service.args.execute.enable_custom_logit_processor
    spec = read_spec(body, params, processors_on, _logprobs(body), body.return_hidden_states)
    rid = request_ids.of_request(request, f"chatcmpl-{prompts.new_id()}", body.rid)
    chat = chat_of(written, names)
    style = service.style if body.separate_reasoning is not False else service.style._replace(reasoning=None)
    kind = "chat.completion.chunk" if body.stream else "chat.completion"
    frame = {"id": rid, "object": kind, "created": int(time.time()), "model": model}
    with service.client.open(streaming=bool(body.stream)) as submission:
        ready = await submission.during(
            prepare(
                service.client.render,
                style,
                chat,
                spec,
                parallel=body.parallel_tool_calls is not False,
                as_shown=body.skip_special_tokens is not None,
            )
        )
        item = Prompt(rid, ready.spec, ids=ready.ids, place="messages")
        service.client.send([item], submission)
        readers = [Reader(ready.reading) for _ in submission.sequences]
        if body.stream:
            with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            choices = [Choice(s, reader, frame, with_usage) for s, reader in zip(submission.sequences, readers)]

            def last() -> bytes:
                told = {**frame, "choices": [], "usage": _usage(submission.sequences, readers)}
                return b"data: " + orjson.dumps(told) + b"\n\n" if with_usage else b""

            return await sse.stream(
                request,
                submission,
                lambda fresh: b"".join([choices[s.index].events() for s in fresh]),
                last,
                failure=problems.openai_event,
            )
        done = await submission.finished()
    whole = [await _whole(sequence, reader) for sequence, reader in zip(done, readers, strict=True)]
    return problems.reply({**frame, "choices": whole, "usage": _usage(done, readers)})


def _logprobs(body: ChatBody) -> LogprobSpec | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise ClientError("top_logprobs", f"is {body.top_logprobs}, but logprobs is not true", "it needs logprobs")
    return LogprobSpec(None, body.top_logprobs or 0, texts=True) if body.logprobs else None


def _usage(sequences: list[Sequence], readers: list[Reader]) -> dict[str, Any]:
    return usage(sequences, sum(reader.reasoning_tokens for reader in readers))


async def _whole(sequence: Sequence, reader: Reader) -> dict[str, Any]:
    finish = sequence.finish
    assert finish is not None
    said = joined(read_parts(sequence.take()[0], sequence.tail, reader), reader)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.text if said.text or not said.calls else None,
        "refusal": None,
        "reasoning_content": said.thought or None,
        "reasoning": said.thought or None,
    }
    if said.calls:
        message["tool_calls"] = [_call(call) for call in said.calls]
    logprobs = await whole_chat_logprobs(sequence.scores) if sequence.scores is not None else None
    return {"index": sequence.index, "message": message, "logprobs": logprobs, **_closed(sequence, reader, finish)}


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _closed(sequence: Sequence, reader: Reader, finish: Finish) -> dict[str, Any]:
    """How it ended, and what is told with the end."""
    hidden = {} if sequence.hidden is None else {"hidden_states": sequence.hidden.meta()}
    return {**ending(finish), "finish_reason": reader.reason(finish)} | hidden


class Choice:
    """The chunks of one sequence. A chunk is `head`, its delta, its log-probabilities, its end and `after`."""

    def __init__(self, sequence: Sequence, reader: Reader, frame: dict[str, Any], with_usage: bool) -> None:
        start = orjson.dumps({**frame, "choices": [{"index": sequence.index, "delta": 0}]})
        self._sequence, self._reader = sequence, reader
        self._head = b"data: " + start[: -len(b"0}]}")]
        self._after = b"}]" + (b',"usage":null' if with_usage else b"") + b"}\n\n"
        self._open = b',"logprobs":null,"finish_reason":null,"matched_stop":null' + self._after
        self._calls = -1  # index of the newest one
        self._begun = False

    def events(self) -> bytes:
        """What is new: the role first, then a chunk for each part that became certain, and last how it ended."""
        sequence, first = self._sequence, self._sequence.num_taken
        texts, _ = sequence.take()
        chunks: list[bytes] = []
        if not self._begun:
            self._begun = True
            chunks.append(self._head + b'{"role":"assistant","content":""}' + self._open)
        if sequence.scores is not None:
            chunks += [self._scored(text, first + i) for i, text in enumerate(texts)]
        elif self._reader.plain:
            head, after = self._head + b'{"content":', b"}" + self._open
            chunks += [head + orjson.dumps(text) + after for text in texts if text]
        else:
            chunks += [self._chunk(self._delta(part)) for text in texts for part in self._reader.push(text)]
        if sequence.finish is not None:
            chunks += [self._chunk(self._delta(part)) for part in self._reader.close(sequence.tail)]
            end = b',"logprobs":null,' + orjson.dumps(_closed(sequence, self._reader, sequence.finish))[1:-1]
            chunks.append(self._head + b"{}" + end + self._after)
        return b"".join(chunks)

    def _chunk(self, delta: dict[str, Any]) -> bytes:
        return self._head + orjson.dumps(delta) + self._open

    def _scored(self, text: str, place: int) -> bytes:
        """A token's chunks, the first of them with its log-probabilities."""
        sequence = self._sequence
        assert sequence.scores is not None
        deltas = [self._delta(part) for part in self._reader.push(text)] or [{"content": ""}]
        told = orjson.dumps(chat_logprobs(sequence.scores, place, place + 1))
        end = b',"finish_reason":null,"matched_stop":null' + self._after
        first = self._head + orjson.dumps(deltas[0]) + b',"logprobs":' + told + end
        return first + b"".join([self._chunk(delta) for delta in deltas[1:]])

    def _delta(self, part: Part) -> dict[str, Any]:
        match part:
            case str():
                return {"content": part}
            case Thought(text):
                return {"reasoning_content": text, "reasoning": text}
            case CallStart(name):
                self._calls += 1
                function = {"name": name, "arguments": ""}
                call = {
                    "index": self._calls,
                    "id": self._reader.new_call_id(),
                    "type": "function",
                    "function": function,
                }
                return {"tool_calls": [call]}
            case CallArguments(text):
                return {"tool_calls": [{"index": self._calls, "function": {"arguments": text}}]}
