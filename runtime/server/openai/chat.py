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
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import EncodedChat, chosen_chat, write_chat
from ramet.runtime.intake.media import with_sources
from ramet.runtime.intake.other_tools import without_others
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Part, Thought
from ramet.runtime.intake.reading import OutputReader, Thoughts, merged
from ramet.runtime.intake.reply import chat_message, prompt_ids_of
from ramet.runtime.intake.tool_choice import CallRules
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.asked import Asked, read_asked, read_sampling, send_chat, with_chat
from ramet.runtime.server.http.exchange import encode, read_object, respond_in_turn
from ramet.runtime.server.http.request_id import RequestId
from ramet.runtime.server.http.service import Served, Service
from ramet.runtime.server.openai import replies
from ramet.runtime.server.openai.prompt_logprobs import prompt_places
from ramet.runtime.server.openai.types import ChatBody


async def chat_completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's chat completions with tools and reasoning, whole or as a stream."""
    body, asked, chat, calls = await read_object(request, partial(_read, service.served))
    shared: dict[str, Any] = {"id": asked.rid, "created": int(time.time()), "model": asked.model}
    with service.client.open(streaming=bool(body.stream), rid=asked.rid) as submission:
        readers = await send_chat(service, submission, asked, chat, calls, thoughts=_thoughts(body))
        sequences = submission.sequences
        if body.stream:
            chunk = replies.ChatChunk(**shared, choices=[], usage=None if body.with_usage else UNSET)
            choices = [ChoiceChunks(s, reader, chunk, body) for s, reader in zip(sequences, readers)]
            last = partial(replies.last_chunk, chunk, sequences, readers)
            return await sse.stream(request, submission, [choice.events for choice in choices], last)
        done = await submission.finished()
    whole = [_whole(sequence, reader, body) for sequence, reader in zip(done, readers, strict=True)]
    if body.return_token_ids:
        shared["prompt_token_ids"] = prompt_ids_of(done[0])
    if body.prompt_logprobs is not None and done[0].logprobs is not None:
        shared["prompt_logprobs"] = prompt_places(done[0].logprobs, body.prompt_logprobs)
    shared["sglext"] = replies.extension_of(done)
    reply = replies.ChatReply(**shared, choices=whole, usage=replies.usage_of(done, readers))
    return await respond_in_turn(request, reply)


def _read(
    served: Served, request_id: RequestId, given: dict[str, Any]
) -> tuple[ChatBody, Asked, EncodedChat, CallRules]:
    """What a body asks for, without its chat; the chat, and which tools may be called. Raises ClientError."""
    written = without_others(given, schema="function")
    body = convert(written, ChatBody)
    params = read_sampling(served, body, max_new_tokens=MAX_NEW_TOKENS)
    returned, truncate = body.details(served.limits.context_length, params.max_new_tokens, _top(body))
    asked = read_asked(served, request_id, body, "chatcmpl-", params, returned, truncate)
    strict = (tool.function.name for tool in body.tools or () if tool is not None and tool.function.strict)
    sourced = with_sources(written, body)
    chat, calls = chosen_chat(
        sourced,
        body.tool_choice,
        served.style,
        strict,
        parallel=body.parallel_tool_calls is not False,
    )
    left = replace(body, messages=[], tools=None, tool_choice=None, chat_template_kwargs=None)
    as_written = write_chat(chat, served.limits.media, has_media=sourced is not written)
    return left, with_chat(asked, chat, calls, served.style), as_written, calls


def _top(body: ChatBody) -> int | None:
    """How many of the best tokens its log-probabilities have; None: it asks for none."""
    if body.top_logprobs and not body.logprobs:
        raise ClientError("top_logprobs", f"is {body.top_logprobs}, but logprobs is not true", "it needs logprobs")
    return body.top_logprobs or 0 if body.logprobs else None


def _as_ids(body: ChatBody) -> bool:
    return bool(body.return_tokens_as_token_ids)


def _thoughts(body: ChatBody) -> Thoughts:
    if body.separate_reasoning is False:
        return Thoughts.IN_TEXT
    if body.include_reasoning is False:
        return Thoughts.LEFT_OUT
    return Thoughts.WHOLE if body.stream_reasoning is False else Thoughts.STREAMED


def _whole(sequence: GeneratedSequence, reader: OutputReader, body: ChatBody) -> replies.ChatChoice:
    ids, top, lists, logprobs = list(sequence.tokens), _top(body), sequence.logprobs, None
    message = chat_message(sequence, reader)
    if top is not None and lists is not None:
        logprobs = replies.ChatLogprobs(replies.all_token_logprobs(lists, top, _as_ids(body)))
    return replies.ChatChoice(
        index=sequence.index,
        message=message,
        logprobs=logprobs,
        token_ids=ids if body.return_token_ids else UNSET,
        prompt_token_ids=prompt_ids_of(sequence) if body.return_prompt_token_ids else UNSET,
        **replies.ending(sequence, reader),
    )


class ChoiceChunks:
    """The chunks of one sequence. Where no parser reads its text they differ only in their content."""

    def __init__(
        self, sequence: GeneratedSequence, reader: OutputReader, chunk: replies.ChatChunk, body: ChatBody
    ) -> None:
        self._sequence, self._reader, self._chunk, self._body = sequence, reader, chunk, body
        self._detailed = bool(body.logprobs or body.return_token_ids or body.with_usage_each)
        self._delta_frame = sse.frame(self._made(sse.HOLE))
        self._text_frame = sse.frame(self._made(replies.Delta(content=sse.HOLE)))
        self._calls = -1  # index of the newest one

    def events(self) -> sse.Events:
        """What is new: the role first, then a chunk for each part that became certain, and last how it ended."""
        sequence, first = self._sequence, self._sequence.num_taken
        texts, ids = sequence.take()
        begin = [self._begun()] if first == 0 else []
        middle = self._middle(texts, ids, first)
        if sequence.returns_numbers:
            return chain(begin, middle, self._end() if sequence.finish is not None else ())
        chunks = [*begin, *middle]
        if sequence.finish is not None:
            chunks += self._end()
        return b"".join(chunks)

    def _middle(self, texts: list[str], ids: list[int], first: int) -> Iterator[bytes]:
        """The chunks of these tokens, of which `first` is the first one's place."""
        reader, step = self._reader, 1 if self._sequence.interval == 1 else len(texts) or 1  # tokens of one event
        if reader.plain and not self._detailed:
            head, tail = self._text_frame
            yield from [head + encode(text) + tail for text in (texts if step == 1 else ["".join(texts)]) if text]
            return
        for start in range(0, len(texts), step):
            parts = [part for text in texts[start : start + step] for part in reader.push(text)]
            parts = parts if step == 1 else merged(parts)
            if self._detailed:
                yield from self._details(parts, first + start, ids[start : start + step])
            else:
                yield from map(self._part, parts)

    def _end(self) -> Iterator[bytes]:
        sequence, reader = self._sequence, self._reader
        yield from [self._part(part) for part in reader.close(sequence.tail)]
        yield from sse.long_event(
            self._chunk_of(replies.Delta(), sequence.num_taken, **replies.ending(sequence, reader))
        )

    def _made(self, delta: replies.Delta, **fields: Any) -> replies.ChatChunk:
        return replace(self._chunk, choices=[replies.ChunkChoice(index=self._sequence.index, delta=delta, **fields)])

    def _begun(self) -> bytes:
        """The first chunk."""
        prompt, role = prompt_ids_of(self._sequence), replies.Delta(role="assistant", content="")
        with_ids, with_prompt = self._body.return_token_ids, self._body.return_prompt_token_ids
        ids = {"token_ids": [] if with_ids else UNSET, "prompt_token_ids": prompt if with_prompt else UNSET}
        chunk = self._with_usage(self._made(role, **ids), 0)
        return sse.event(replace(chunk, prompt_token_ids=prompt) if with_ids else chunk)

    def _part(self, part: Part) -> bytes:
        delta = self._delta(part)
        if self._detailed:
            return sse.event(self._chunk_of(delta, self._sequence.num_taken))
        return self._delta_frame.around(delta)

    def _details(self, parts: list[Part], place: int, ids: list[int]) -> Iterator[bytes]:
        """The chunks of these tokens, the first of them with all that is asked of each. `place`: the first one's."""
        end, lists, asked = place + len(ids), self._sequence.logprobs, dict[str, Any]()
        if lists is not None:
            places = replies.places_of(lists, place, end, _top(self._body) or 0, _as_ids(self._body))
            asked["logprobs"] = replies.ChatLogprobs(places)
        if self._body.return_token_ids:
            asked["token_ids"] = ids
        if not parts and not asked:
            return
        first, *rest = parts or [""]
        yield from sse.long_event(self._chunk_of(self._delta(first), end, **asked))
        for part in rest:
            yield sse.event(self._chunk_of(self._delta(part), end))

    def _chunk_of(self, delta: replies.Delta, num_tokens: int, **fields: Any) -> replies.ChatChunk:
        """`num_tokens`: how many were sent with it."""
        if self._body.return_token_ids:
            fields = {"token_ids": [], **fields}
        return self._with_usage(self._made(delta, **fields), num_tokens)

    def _with_usage(self, chunk: replies.ChatChunk, num_tokens: int) -> replies.ChatChunk:
        if not self._body.with_usage_each:
            return chunk
        return replace(chunk, usage=replies.usage_so_far(self._sequence, num_tokens, self._reader))

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
