"""POST /v1/chat/completions. In a stream the bytes around a chunk's delta are made once per choice."""

import time
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from aiohttp import web
from msgspec import UNSET
from msgspec.structs import replace

from ramet.ipc.params import MAX_NEW_TOKENS
from ramet.ipc.spec import LogprobSpec
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import chosen_chat
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart
from ramet.runtime.intake.reading import Part, Reader, Thought
from ramet.runtime.logprobs import LogprobLists
from ramet.runtime.reply import chat_message
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.asked import read_asked, read_sampling, send_chat
from ramet.runtime.server.http.exchange import encode, read_object, respond_in_turn
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai import replies
from ramet.runtime.server.openai.types import ChatBody


async def chat_completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's chat completions with tools and reasoning, whole or as a stream."""
    written = await read_object(request)
    body = convert(written, ChatBody)
    params = read_sampling(service, body, max_new_tokens=MAX_NEW_TOKENS)
    asked = read_asked(service, request, body, "chatcmpl-", params, _logprobs(body), body.return_hidden_states)
    chat = chosen_chat(written, body.tool_choice, service.style)
    style = service.style if body.separate_reasoning is not False else service.style._replace(reasoning=None)
    shared: dict[str, Any] = {"id": asked.rid, "created": int(time.time()), "model": asked.model}
    parallel = body.parallel_tool_calls is not False
    with service.client.open(streaming=bool(body.stream)) as submission:
        readers = await send_chat(service, submission, asked, chat, style=style, parallel=parallel)
        sequences = submission.sequences
        if body.stream:
            chunk = replies.ChatChunk(**shared, choices=[], usage=None if body.with_usage else UNSET)
            choices = [Choice(s, reader, chunk) for s, reader in zip(sequences, readers)]
            last = partial(replies.last_chunk, chunk, sequences, readers)
            return await sse.stream(request, submission, [choice.events for choice in choices], last)
        done = await submission.finished()
    whole = [_whole(sequence, reader) for sequence, reader in zip(done, readers, strict=True)]
    reply = replies.ChatReply(**shared, choices=whole, usage=replies.usage_of(done, readers))
    return await respond_in_turn(request, reply)


def _logprobs(body: ChatBody) -> LogprobSpec | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise ClientError("top_logprobs", f"is {body.top_logprobs}, but logprobs is not true", "it needs logprobs")
    return LogprobSpec(None, body.top_logprobs or 0, texts=True) if body.logprobs else None


def _whole(sequence: Sequence, reader: Reader) -> replies.ChatChoice:
    message, lists = chat_message(sequence, reader), sequence.logprobs
    logprobs = replies.ChatLogprobs(replies.all_token_logprobs(lists)) if lists is not None else None
    end = replies.ending(sequence, reader)
    return replies.ChatChoice(index=sequence.index, message=message, logprobs=logprobs, **end)


class Choice:
    """The chunks of one sequence. Where no parser reads its text they differ only in their content."""

    def __init__(self, sequence: Sequence, reader: Reader, chunk: replies.ChatChunk) -> None:
        self._sequence, self._reader, self._chunk = sequence, reader, chunk
        self._delta_frame = sse.frame(self._made(sse.HOLE))
        self._text_frame = sse.frame(self._made(replies.Delta(content=sse.HOLE)))
        self._calls = -1  # index of the newest one

    def events(self) -> sse.Events:
        """What is new: the role first, then a chunk for each part that became certain, and last how it ended."""
        sequence, first = self._sequence, self._sequence.num_taken
        texts, _ = sequence.take()
        begin = [self._delta_frame.around(replies.Delta(role="assistant", content=""))] if first == 0 else []
        if sequence.returns_numbers:
            lists = sequence.logprobs
            middle = self._parts(texts) if lists is None else self._with_logprobs(texts, first, lists)
            return chain(begin, middle, self._end() if sequence.finish is not None else ())
        chunks = begin + self._parts(texts)
        if sequence.finish is not None:
            chunks += self._end()
        return b"".join(chunks)

    def _parts(self, texts: list[str]) -> list[bytes]:
        if self._reader.plain:
            head, tail = self._text_frame
            return [head + encode(text) + tail for text in texts if text]
        return [self._part(part) for text in texts for part in self._reader.push(text)]

    def _with_logprobs(self, texts: list[str], first: int, lists: LogprobLists) -> Iterator[bytes]:
        """`texts` are those of the tokens from `first` on. A token's logprobs come with the first of its chunks."""
        for place, text in enumerate(texts, first):
            part, *rest = self._reader.push(text) or [""]
            logprobs = replies.ChatLogprobs(replies.token_logprobs(lists, place, place + 1))
            yield sse.event(self._made(self._delta(part), logprobs=logprobs))
            yield from map(self._part, rest)

    def _end(self) -> Iterator[bytes]:
        sequence, reader = self._sequence, self._reader
        yield from [self._part(part) for part in reader.close(sequence.tail)]
        yield from sse.long_event(self._made(replies.Delta(), **replies.ending(sequence, reader)))

    def _made(self, delta: replies.Delta, **fields: Any) -> replies.ChatChunk:
        return replace(self._chunk, choices=[replies.ChunkChoice(index=self._sequence.index, delta=delta, **fields)])

    def _part(self, part: Part) -> bytes:
        return self._delta_frame.around(self._delta(part))

    def _delta(self, part: Part) -> replies.Delta:
        match part:
            case str():
                return replies.Delta(content=part)
            case Thought(text):
                return replies.Delta(reasoning_content=text, reasoning=text)
            case CallStart(name):
                self._calls += 1
                function = replies.FunctionDelta(name=name, arguments="")
                new_id = self._reader.new_call_id()
                call = replies.ToolCallDelta(index=self._calls, id=new_id, type="function", function=function)
            case CallArguments(text):
                call = replies.ToolCallDelta(index=self._calls, function=replies.FunctionDelta(arguments=text))
        return replies.Delta(tool_calls=[call])
