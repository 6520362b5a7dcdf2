"""POST /v1/chat/completions. In a stream the bytes around a chunk's delta are made once per choice."""

import time
from typing import Any

from aiohttp import web
from msgspec import UNSET
from msgspec.structs import asdict, replace

from ramet.ipc.params import MAX_NEW_TOKENS
from ramet.ipc.spec import LogprobSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import callable_tools, chat_of, refuse_without_parser
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart
from ramet.runtime.intake.reading import Call, Part, Reader, Thought, joined, read_parts
from ramet.runtime.intake.specs import read_params, read_spec
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.chats import send_chat
from ramet.runtime.server.http.exchange import encode, read_object, respond, set_request_id
from ramet.runtime.server.http.service import Service, check_model
from ramet.runtime.server.openai import replies
from ramet.runtime.server.openai.chat_types import ChatBody
from ramet.runtime.server.openai.logprobs import all_token_logprobs, token_logprobs

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
    rid = set_request_id(request, f"chatcmpl-{prompts.new_id()}", body.rid)
    chat = chat_of(written, names)
    style = service.style if body.separate_reasoning is not False else service.style._replace(reasoning=None)
    created = int(time.time())
    with service.client.open(streaming=bool(body.stream)) as submission:
        readers = await send_chat(
            service,
            submission,
            Prompt(rid, spec, place="messages"),
            chat,
            style=style,
            parallel=body.parallel_tool_calls is not False,
            as_shown=body.skip_special_tokens is not None,
        )
        sequences = submission.sequences
        if body.stream:
            with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            usage = None if with_usage else UNSET
            chunk = replies.ChatChunk(id=rid, created=created, model=model, choices=[], usage=usage)
            choices = [Choice(s, reader, chunk) for s, reader in zip(sequences, readers)]
            return await sse.stream(
                request,
                submission,
                lambda fresh: b"".join([choices[s.index].events() for s in fresh]),
                lambda: sse.event(replace(chunk, usage=_usage(sequences, readers))) if with_usage else b"",
                failure=sse.broken_for_openai,
            )
        done = await submission.finished()
    whole = [await _whole(sequence, reader) for sequence, reader in zip(done, readers, strict=True)]
    return respond(replies.ChatReply(id=rid, created=created, model=model, choices=whole, usage=_usage(done, readers)))


def _logprobs(body: ChatBody) -> LogprobSpec | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise ClientError("top_logprobs", f"is {body.top_logprobs}, but logprobs is not true", "it needs logprobs")
    return LogprobSpec(None, body.top_logprobs or 0, texts=True) if body.logprobs else None


def _usage(sequences: list[Sequence], readers: list[Reader]) -> replies.Usage:
    return replies.usage_of(sequences, sum(reader.reasoning_tokens for reader in readers))


async def _whole(sequence: Sequence, reader: Reader) -> replies.ChatChoice:
    said = joined(read_parts(sequence.take()[0], sequence.tail, reader), reader)
    message = replies.ChatMessage(
        content=said.text if said.text or not said.calls else None,
        reasoning_content=said.thought or None,
        reasoning=said.thought or None,
        tool_calls=[_call(call) for call in said.calls] or UNSET,
    )
    logprobs = (
        replies.ChatLogprobs(await all_token_logprobs(sequence.logprobs)) if sequence.logprobs is not None else None
    )
    return replies.ChatChoice(index=sequence.index, message=message, logprobs=logprobs, **_ending(sequence, reader))


def _call(call: Call) -> replies.ToolCall:
    return replies.ToolCall(id=call.id, function=replies.CalledFunction(call.name, call.arguments))


def _ending(sequence: Sequence, reader: Reader) -> dict[str, Any]:
    assert sequence.finish is not None
    return {**replies.ending(sequence), "finish_reason": reader.reason(sequence.finish)}


class Choice:
    """The chunks of one sequence. Where no parser reads its text they differ only in their content."""

    def __init__(self, sequence: Sequence, reader: Reader, chunk: replies.ChatChunk) -> None:
        self._sequence, self._reader, self._chunk = sequence, reader, chunk
        self._delta_frame = sse.frame(self._made(sse.HOLE))
        self._text_frame = sse.frame(self._made(replies.Delta(content=sse.HOLE)))
        self._calls = -1  # index of the newest one
        self._begun = False

    def events(self) -> bytes:
        """What is new: the role first, then a chunk for each part that became certain, and last how it ended."""
        sequence, reader, first = self._sequence, self._reader, self._sequence.num_taken
        texts, _ = sequence.take()
        chunks: list[bytes] = []
        if not self._begun:
            self._begun = True
            chunks.append(self._delta_frame.around(replies.Delta(role="assistant", content="")))
        if sequence.logprobs is not None:
            chunks += [self._with_logprobs(text, first + i) for i, text in enumerate(texts)]
        elif reader.plain:
            head, tail = self._text_frame
            chunks += [head + encode(text) + tail for text in texts if text]
        else:
            chunks += [self._part(part) for text in texts for part in reader.push(text)]
        if sequence.finish is not None:
            chunks += [self._part(part) for part in reader.close(sequence.tail)]
            chunks.append(sse.event(self._made(replies.Delta(), **_ending(sequence, reader))))
        return b"".join(chunks)

    def _made(self, delta: replies.Delta, **fields: Any) -> replies.ChatChunk:
        return replace(self._chunk, choices=[replies.ChunkChoice(index=self._sequence.index, delta=delta, **fields)])

    def _part(self, part: Part) -> bytes:
        return self._delta_frame.around(self._delta(part))

    def _with_logprobs(self, text: str, place: int) -> bytes:
        """A token's chunks, the first of them with its log-probabilities."""
        lists = self._sequence.logprobs
        assert lists is not None
        first, *rest = [self._delta(part) for part in self._reader.push(text)] or [replies.Delta(content="")]
        logprobs = replies.ChatLogprobs(token_logprobs(lists, place, place + 1))
        return sse.event(self._made(first, logprobs=logprobs)) + b"".join(map(self._delta_frame.around, rest))

    def _delta(self, part: Part) -> replies.Delta:
        match part:
            case str():
                return replies.Delta(content=part)
            case Thought(text):
                return replies.Delta(reasoning_content=text, reasoning=text)
            case CallStart(name):
                self._calls += 1
                function = replies.FunctionDelta(name=name, arguments="")
                return self._call_delta(id=self._reader.new_call_id(), type="function", function=function)
            case CallArguments(text):
                return self._call_delta(function=replies.FunctionDelta(arguments=text))

    def _call_delta(self, **fields: Any) -> replies.Delta:
        return replies.Delta(tool_calls=[replies.ToolCallDelta(index=self._calls, **fields)])
