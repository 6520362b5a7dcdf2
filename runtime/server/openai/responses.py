"""POST /v1/responses, and the stored ones: GET, DELETE, their input items.

Output items and events are made in responses_items.py.
"""

import time
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web
from msgspec import to_builtins
from msgspec.structs import replace

from ramet.ipc.params import MAX_NEW_TOKENS, SamplingParams, shown
from ramet.ipc.spec import LogprobSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.asked import Asked, read_asked, read_sampling, send_chat
from ramet.runtime.server.http.exchange import encode, read_object, respond
from ramet.runtime.server.http.response_store import Stored
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.responses_chat import (
    ResponsesBody,
    listed,
    read_chat,
    read_input,
    read_output,
    with_items,
)
from ramet.runtime.server.openai.responses_items import Output
from ramet.runtime.server.openai.responses_replies import DeletedResponse, ResponseItems, ResponseReply

MAX_ITEMS = 100
LOGPROBS = "message.output_text.logprobs"


async def responses(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's responses, whole or as a stream, kept for a next one or not."""
    written = with_items(await read_object(request))
    body = convert(written, ResponsesBody)
    params = read_sampling(service, body, max_new_tokens=MAX_NEW_TOKENS, n=1)
    asked = read_asked(service, request, body, "resp_", params, _logprobs(body))
    previous = body.previous_response_id
    before = orjson.loads(_stored(service, previous, "previous_response_id").messages) if previous else []
    chat = read_chat(body, before, service.style)
    parallel = body.parallel_tool_calls is not False
    stored = body.store is not False and service.responses.maxsize > 0
    with service.client.open(streaming=bool(body.stream)) as submission:
        (reader,) = await send_chat(service, submission, asked, chat, place="input", parallel=parallel)
        (sequence,) = submission.sequences

        def keep(response: ResponseReply) -> ResponseReply:
            if not response.store:
                return response
            messages = [*before, *read_input(body.input), *read_output(to_builtins(response.output))]
            kept = Stored(encode(response), encode(written["input"]), encode(messages))
            return replace(response, store=service.responses.put(response.id, kept))

        begun = _begun(body, asked, params, written.get("tool_choice") or "auto", stored)
        output = Output(sequence, reader, begun, keep)
        if body.stream:
            return await sse.stream(request, submission, [output.events], failure=output.failure, done=b"")
        await submission.finished()
    await output.read_whole()
    return respond(output.response)


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
            return respond(_page(listed(key, orjson.loads(found.items)), request.query))
        case "DELETE", "":
            service.responses.pop(key, None)
            return respond(DeletedResponse(key))
        case "POST", "cancel":
            raise ClientError("", "Only a response with background = true can be cancelled, which is not built.")
        case _:
            raise ClientError("", f"There is no {request.method} {request.path} here.", status=404)


def _page(items: list[dict[str, Any]], query: Mapping[str, str]) -> ResponseItems:
    """Newest first unless the query says order=asc; `limit` of them, those that come `after` an id."""
    if query.get("order") != "asc":
        items.reverse()
    limit = query.get("limit", str(MAX_ITEMS))
    if not limit.isdecimal() or len(limit) > 9 or not 1 <= int(limit) <= MAX_ITEMS:
        raise ClientError("limit", f"is {shown(limit)}, must be in [1, {MAX_ITEMS}]")
    after = query.get("after")
    start = next((i + 1 for i, item in enumerate(items) if item["id"] == after), 0)
    page = items[start : start + int(limit)]
    first_id, last_id = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return ResponseItems(data=page, first_id=first_id, last_id=last_id, has_more=start + len(page) < len(items))


def _stored(service: Service, key: str, place: str) -> Stored:
    """`place`: the field that names it, or nothing where the path does."""
    found = service.responses.get(key)
    if found is None:
        fact = f"is {shown(key)}: no such response is stored" if place else f"No response {shown(key)} is stored"
        hint = "the least recently used are forgotten, and all of them when the server ends"
        raise ClientError(place, fact, hint, 404, "response_not_found")
    return found


def _logprobs(body: ResponsesBody) -> LogprobSpec | None:
    wanted = body.top_logprobs or LOGPROBS in (body.include or ())
    return LogprobSpec(None, body.top_logprobs or 0, texts=True) if wanted else None


def _begun(body: ResponsesBody, asked: Asked, params: SamplingParams, choice: Any, stored: bool) -> ResponseReply:
    """The response before its first token."""
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
        text={"format": {"type": "text"}},
        tool_choice=choice,
        tools=to_builtins(body.tools or []),
        top_logprobs=body.top_logprobs or 0,
        top_p=params.top_p,
        user=body.user,
        metadata=body.metadata or {},
    )
