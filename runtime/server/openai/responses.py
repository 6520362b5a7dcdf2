"""POST /v1/responses, and the stored ones: GET, DELETE, their input items."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from aiohttp import web
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ramet.ipc.messages import Finish, FinishKind
from ramet.ipc.params import MAX_NEW_TOKENS, SamplingParams, shown
from ramet.ipc.spec import LogprobSpec
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import EncodedChat, arguments_in, write_chat
from ramet.runtime.intake.parsers.tools import CallStart, Part, Thought
from ramet.runtime.intake.reading import OutputReader
from ramet.runtime.intake.reply import weight_spans
from ramet.runtime.intake.specs import Returned
from ramet.runtime.intake.tool_choice import CallRules
from ramet.runtime.server.http import problems, sse
from ramet.runtime.server.http.asked import Asked, read_asked, read_sampling, send_chat, with_chat
from ramet.runtime.server.http.exchange import encode, read_object_with_body, respond, written
from ramet.runtime.server.http.items import Items
from ramet.runtime.server.http.query_numbers import whole_number
from ramet.runtime.server.http.receiving import ReceivedBody
from ramet.runtime.server.http.request_id import RequestId
from ramet.runtime.server.http.response_store import Stored, StoredItems
from ramet.runtime.server.http.service import Served, Service
from ramet.runtime.server.openai import responses_replies as replies
from ramet.runtime.server.openai.replies import CachedTokens, ReasoningTokens, TokenLogprob, token_logprobs
from ramet.runtime.server.openai.responses_chat import (
    ResponsesBody,
    items_to_store,
    listed,
    messages_in,
    place_of,
    read_chat,
    read_stored,
    with_items,
    with_output,
)
from ramet.runtime.server.openai.responses_items import ItemMessages
from ramet.runtime.server.openai.responses_replies import ResponseReply
from ramet.runtime.server.openai.responses_tools import as_replied, groups_in, with_functions
from ramet.runtime.workers.offload import offloaded

MAX_ITEMS = 100
LOGPROBS = "message.output_text.logprobs"
Keep = Callable[[ResponseReply], bool]  # stores a whole response, if there is room for it


class ReadInput(NamedTuple):
    """The input of a response, after that of the response that it follows."""

    asked: Asked
    chat: EncodedChat
    calls: CallRules


class KeptInput(NamedTuple):
    """What of an input is stored: its items, and the chat that it ends."""

    items: StoredItems
    entries: bytes  # JSON of the chat's messages
    media: bytes


NOTHING = KeptInput(StoredItems(()), b"", b"")


async def responses(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's responses, whole or as a stream, kept for a next one or not."""
    served, stores = service.served, service.responses.max_bytes > 0
    (sent, body, params, asked, read), received = await read_object_with_body(request, partial(_read, served))
    if read is None:
        before = _stored(service, body.previous_response_id or "", "previous_response_id")
        read = await received.read(partial(_read_following, served, asked, before.messages, before.media))
    stored, kept = stores and body.store is not False, NOTHING
    to_store = received if stored else None
    del received
    with service.client.open(streaming=bool(body.stream), rid=asked.rid) as submission:
        (reader,) = await send_chat(service, submission, read.asked, read.chat, read.calls, place="input")
        (sequence,) = submission.sequences
        if to_store is not None:  # only now: most of the long chats are refused
            kept = await _kept(to_store, read.chat)
        del to_store, read

        def keep(response: ResponseReply) -> bool:
            made = Stored(encode(response), kept.items, with_output(kept.entries, response.output), kept.media)
            return service.responses.put(submission.origin.owner, response.id, made)

        output = ResponseOutput(sequence, reader, _begun(body, sent, asked, params, stored), keep)
        if body.stream:
            return await sse.stream(request, submission, [output.events], failure=output.failure, done=b"")
        await submission.finished()
    await output.read_whole()
    return respond(output.response)


def _read(
    served: Served, request_id: RequestId, written: dict[str, Any]
) -> tuple[dict[str, Any], ResponsesBody, SamplingParams, Asked, ReadInput | None]:
    """The body with functions alone, and what it asks for, both without its input, and the input.

    None: it follows a stored response, without which its input cannot be read. Raises ClientError.
    """
    sent, body = _typed(written)
    params = read_sampling(served, body, max_new_tokens=MAX_NEW_TOKENS, n=1)
    asked = read_asked(served, request_id, body, "resp_", params, Returned(_logprobs(body)))
    read = None if body.previous_response_id else _read_chat(served, asked, body, messages_in(body.input))
    return {**sent, "input": ""}, replace(body, input=""), params, asked, read


def _read_following(served: Served, asked: Asked, messages: bytes, media: bytes, written: dict[str, Any]) -> ReadInput:
    """`messages`, `media`: of the stored response that this one follows. Raises ClientError."""
    _, body = _typed(written)
    own = messages_in(body.input)
    stored = read_stored(messages, media)
    arguments = [*arguments_in(stored), *own.arguments]
    said = ItemMessages([*stored, *own.messages], own.has_media or bool(media), arguments)
    return _read_chat(served, asked, body, said)


def _typed(written: dict[str, Any]) -> tuple[dict[str, Any], ResponsesBody]:
    """The body with typed items and functions alone. Raises ClientError."""
    sent = with_functions(with_items(written))
    return sent, convert(sent, ResponsesBody)


def _read_chat(served: Served, asked: Asked, body: ResponsesBody, said: ItemMessages) -> ReadInput:
    """`said`: the chat without the body's instructions. Raises ClientError."""
    chat, calls = read_chat(body, said, served.style)
    before = len(chat.messages) - len(said.messages)
    as_written = write_chat(
        chat, served.limits.media, "input", before, has_media=said.has_media, arguments=said.arguments
    )
    return ReadInput(with_chat(asked, chat, calls, served.style), as_written, calls)


async def _kept(received: ReceivedBody, chat: EncodedChat) -> KeptInput:
    items = await received.read(items_to_store)
    media = await offloaded(partial(encode, chat.sources)) if chat.sources else b""
    return KeptInput(items, chat.json[chat.entries], media)


async def stored(service: Service, request: web.Request, name: str) -> web.Response:
    """A stored response: GET it or its `/input_items`, DELETE it."""
    key, _, part = name.partition("/")
    found = _stored(service, key, "")
    match request.method, part:
        case (("GET" | "HEAD"), ""):
            if request.query.get("stream", "false") != "false":
                raise ClientError("stream", "is set, but a stored response is returned whole", "omit it")
            return web.Response(body=found.response, content_type="application/json")
        case (("GET" | "HEAD"), "input_items"):
            return respond(_page(key, found.items, request.query))
        case "DELETE", "":
            service.responses.remove(OWNER.get(), key)
            return respond(replies.DeletedResponse(key))
        case "POST", "cancel":
            raise ClientError("", "Cannot cancel a synchronous response.", "background = true is not built")
        case _:
            raise ClientError("", f"There is no {request.method} {request.path} here.", status=404)


def _page(key: str, items: StoredItems, query: Mapping[str, str]) -> replies.ResponseItems:
    """Newest first unless the query says order=asc; `limit` of them, those that come `after` an id.

    No other item is read, because a client may ask for thousands of pages.
    """
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ClientError("order", f"is {shown(order)}, must be asc or desc")
    ascending = order == "asc"
    places = range(len(items)) if ascending else range(len(items) - 1, -1, -1)
    limit = whole_number(written := query.get("limit", str(MAX_ITEMS)))
    if limit is None or not 1 <= limit <= MAX_ITEMS:
        raise ClientError("limit", f"is {shown(written)}, must be in [1, {MAX_ITEMS}]")
    start = 0
    if after := query.get("after", ""):
        if (place := place_of(after, key, items, newest=not ascending)) is None:
            fact = f"is {shown(after)}, which no input item of this response has as its id"
            raise ClientError("after", fact, "send the last_id of a page, or omit it for the first page")
        start = places.index(place) + 1
    chosen = places[start : start + limit]
    page = [listed(key, items, place) for place in chosen]
    first_id, last_id = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    has_more = start + len(page) < len(items)
    return replies.ResponseItems(data=page, first_id=first_id, last_id=last_id, has_more=has_more)


def _stored(service: Service, key: str, place: str) -> Stored:
    """`place`: the field that names it, or nothing where the path does."""
    found = service.responses.get(OWNER.get(), key)
    if found is None:
        fact = f"is {shown(key)}: no such response is stored" if place else f"No response {shown(key)} is stored"
        hint = "the least recently used are forgotten, and all of them when the server ends"
        raise ClientError(place, fact, hint, 404, "response_not_found")
    return found


def _logprobs(body: ResponsesBody) -> LogprobSpec | None:
    wanted = body.top_logprobs or LOGPROBS in (body.include or ())
    return LogprobSpec(None, body.top_logprobs or 0, texts=True) if wanted else None


def _begun(
    body: ResponsesBody, sent: dict[str, Any], asked: Asked, params: SamplingParams, stored: bool
) -> ResponseReply:
    """The response before its first token. `sent`: the body as the client wrote it."""
    return ResponseReply(
        id=asked.new_id,
        created_at=int(time.time()),
        instructions=body.instructions,
        max_output_tokens=None if body.max_output_tokens is None else params.max_new_tokens,
        model=asked.model,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        reasoning={"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        store=stored,
        temperature=params.temperature,
        tool_choice=sent.get("tool_choice") or "auto",
        tools=as_replied(body.tools),
        text={"format": (sent.get("text") or {}).get("format") or {"type": "text"}},
        top_logprobs=body.top_logprobs or 0,
        top_p=params.top_p,
        user=body.user,
        metadata=body.metadata or {},
    )


class ResponseOutput(Items[replies.OutputItem]):
    """Once it is read, `response` is the whole response."""

    def __init__(self, sequence: GeneratedSequence, reader: OutputReader, response: ResponseReply, keep: Keep) -> None:
        super().__init__(sequence, reader)
        self.response, self._keep = response, keep
        self._groups = groups_in(response.tools)
        self._logprobs = bytearray()  # of the open item: JSON of entries, made once, as they come
        self._pending: list[TokenLogprob] = []  # of tokens whose text is not certain yet
        self._number = 0

    def failure(self, error: RametError) -> bytes:
        """The last events of a stream that failed."""
        self._close(complete=False)
        body = problems.openai(error)
        code = (body.code or "invalid_prompt") if isinstance(error, ClientError) else "server_error"
        self._finish(replies.ResponseFailed, "failed", error=replies.ResponseError(code, body.message))
        return self._taken()

    def _start(self) -> None:
        self._send(replies.ResponseCreated, response=self.response)
        self._send(replies.ResponseInProgress, response=self.response)

    def _push(self, text: str, place: int) -> list[Part]:
        lists, thinking = self._sequence.logprobs, self._reader.thinking
        if lists is not None:
            self._pending += token_logprobs(lists, place, place + 1)
        parts = self._reader.push(text)
        if thinking and not self._reader.thinking and not parts:
            self._pending.clear()  # the tag that closed a thought
        return parts

    def _add(self, part: Part) -> None:
        if not isinstance(part, str):
            self._pending.clear()  # of a thought's tokens, or a call's
        super()._add(part)

    def _item(self, first: Part) -> replies.OutputItem:
        new_id = prompts.new_id()
        item: replies.OutputItem = replies.MessageItem(f"msg_{new_id}")
        part: replies.OutputPart | None = replies.OutputText(text="", logprobs=[])
        if isinstance(first, Thought):
            item, part = replies.ReasoningItem(f"rs_{new_id}"), replies.ReasoningText("")
        elif isinstance(first, CallStart):
            group, name = self._groups.get(first.name, (UNSET, first.name))
            call_id = self._reader.new_call_id()
            item, part = replies.CallItem(f"fc_{new_id}", call_id=call_id, name=name, group=group), None
        self._send(replies.ItemAdded, output_index=len(self.closed), item=item)
        if part is not None:
            self._send(replies.PartAdded, **self._at(item), part=part)
        return item

    def _grew(self, item: replies.OutputItem, text: str) -> None:
        match item:
            case replies.MessageItem():
                logprobs, self._pending = encode(self._pending), []
                self._logprobs += (b"," if self._logprobs and len(logprobs) > 2 else b"") + logprobs[1:-1]
                self._send(replies.OutputTextDelta, **self._at(item), delta=text, logprobs=written(logprobs))
            case replies.ReasoningItem():
                self._send(replies.ReasoningDelta, **self._at(item), delta=text)
            case replies.CallItem():
                self._send(replies.ArgumentsDelta, **self._at(item), delta=text)

    def _ended(self, item: replies.OutputItem, text: str, complete: bool) -> replies.OutputItem:
        at, logprobs, self._logprobs = self._at(item), written(b"[" + self._logprobs + b"]"), bytearray()
        whole: dict[str, Any] = {"status": "completed" if complete else "incomplete"}
        match item:
            case replies.CallItem(name=name):
                self._send(replies.ArgumentsDone, **at, name=name, arguments=text)
                whole["arguments"] = text
            case replies.MessageItem():
                self._send(replies.OutputTextDone, **at, text=text, logprobs=logprobs)
                whole["content"] = [replies.OutputText(text=text, logprobs=logprobs)]
            case replies.ReasoningItem():
                self._send(replies.ReasoningDone, **at, text=text)
                whole["content"] = [replies.ReasoningText(text)]
        for part in whole.get("content", ()):
            self._send(replies.PartDone, **at, part=part)
        done = replace(item, **whole)
        self._send(replies.ItemDone, output_index=len(self.closed), item=done)
        return done

    def _end(self, finish: Finish) -> None:
        opened, num_generated = self._sequence.opened, self._sequence.num_generated
        cached, thought = CachedTokens(opened.cached_tokens), ReasoningTokens(self._reader.reasoning_tokens)
        total = opened.prompt_tokens + num_generated
        usage = replies.ResponseUsage(opened.prompt_tokens, cached, num_generated, thought, total)
        if self._reader.cut(finish):
            reason = {"reason": "max_output_tokens" if finish.kind is FinishKind.LENGTH else "stop"}
            self._finish(replies.ResponseIncomplete, "incomplete", incomplete_details=reason, usage=usage)
        else:
            self._finish(replies.ResponseCompleted, "completed", usage=usage)

    def _finish(self, event: type[Struct], status: str, **fields: Any) -> None:
        versions = weight_spans(self._sequence)
        response = replace(self.response, status=status, output=self.closed, weight_versions=versions, **fields)
        if response.store and event is not replies.ResponseFailed:
            response = replace(response, store=self._keep(response))
        self.response = response
        self._send(event, response=self.response)

    def _at(self, item: replies.OutputItem) -> dict[str, Any]:
        """The fields that locate the open item."""
        return {"item_id": item.id, "output_index": len(self.closed)}

    def _send(self, event: type[Struct], **fields: Any) -> None:
        if self._events is not None:
            self._emit(event(sequence_number=self._number, **fields))
            self._number += 1
