"""POST /v1/responses, and the stored ones: GET, DELETE, their input items.

Decides the order of things: read, render, run, tell, store. Output items and events are made in responses_items.py.
"""

import time
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web
from msgspec import to_builtins
from msgspec.structs import asdict, replace

from ramet.ipc.params import MAX_NEW_TOKENS, SamplingParams, shown
from ramet.ipc.spec import LogprobSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import prepare
from ramet.runtime.intake.reading import Reader
from ramet.runtime.intake.sampling import read_params
from ramet.runtime.intake.specs import read_spec
from ramet.runtime.server.http import problems, request_ids, sse
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.request_body import read_object
from ramet.runtime.server.http.response_store import Stored
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.responses_chat import as_items, listed, read_chat, read_input, read_output, with_types
from ramet.runtime.server.openai.responses_items import Output
from ramet.runtime.server.openai.responses_types import ResponsesBody

MAX_ITEMS = 100
LOGPROBS = "message.output_text.logprobs"


async def responses(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's responses, whole or as a stream, kept for a next one or not."""
    written = with_types(await read_object(request))
    body = convert(written, ResponsesBody)
    model = check_model(service, body.model)
    params = read_params(asdict(body), replace(service.defaults, max_new_tokens=MAX_NEW_TOKENS, n=1))
    before = _messages_before(service, body.previous_response_id) if body.previous_response_id else []
    chat = read_chat(body, before, service.style)
    response_id = f"resp_{prompts.new_id()}"
    rid = request_ids.of_request(request, response_id, body.rid)
    spec = read_spec(body, params, service.args.execute.enable_custom_logit_processor, _logprobs(body))
    stored = body.store is not False and service.responses.is_on
    response = _frame(body, response_id, model, params, written.get("tool_choice") or "auto", stored)
    with service.client.open(streaming=bool(body.stream)) as submission:
        ready = await submission.during(
            prepare(
                service.client.render,
                service.style,
                chat,
                spec,
                place="input",
                parallel=body.parallel_tool_calls is not False,
                as_shown=body.skip_special_tokens is not None,
            )
        )
        item = Prompt(rid, ready.spec, ids=ready.ids, place="input")
        service.client.send([item], submission)
        (sequence,) = submission.sequences
        output = Output(sequence, Reader(ready.reading), response)

        def keep() -> None:
            if response["store"]:
                messages = [*before, *read_input(body.input), *read_output(output.items)]
                response["store"] = service.responses.put(response_id, response, as_items(written["input"]), messages)

        if body.stream:

            def events(_: list[Sequence]) -> bytes:
                told = output.events()
                if sequence.finish is not None:
                    keep()
                return told

            return await sse.stream(request, submission, events, failure=output.failure, done=b"")
        await submission.finished()
    await output.read_whole()
    keep()
    return problems.reply(response)


async def stored(service: Service, request: web.Request, name: str) -> web.Response:
    """A stored response: GET it or its `/input_items`, DELETE it."""
    key, _, part = name.partition("/")
    found = _stored(service, key, "")
    match request.method, part:
        case (("GET" | "HEAD"), ""):
            if request.query.get("stream", "false") != "false":
                raise ClientError("stream", "is set, but a stored response is told whole", "omit it")
            return web.Response(body=found.response, content_type="application/json")
        case (("GET" | "HEAD"), "input_items"):
            return problems.reply(_page(listed(key, orjson.loads(found.items)), request.query))
        case "DELETE", "":
            service.responses.drop(key)
            return problems.reply({"id": key, "object": "response", "deleted": True})
        case "POST", "cancel":
            raise ClientError("", "Only a response with background = true can be cancelled, which is not built.")
        case _:
            raise ClientError("", f"There is no {request.method} {request.path} here.", status=404)


def _page(items: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Newest first unless the query says order=asc; `limit` of them, those that come `after` an id."""
    if query.get("order") != "asc":
        items.reverse()
    limit = query.get("limit", str(MAX_ITEMS))
    if not limit.isdecimal() or not 1 <= int(limit[:9]) <= MAX_ITEMS:
        raise ClientError("limit", f"is {shown(limit)}, must be in [1, {MAX_ITEMS}]")
    after = query.get("after")
    start = next((i + 1 for i, item in enumerate(items) if item["id"] == after), 0)
    page = items[start : start + int(limit)]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return {"object": "list", "data": page, **ends, "has_more": start + len(page) < len(items)}


def _messages_before(service: Service, key: str) -> list[Any]:
    messages: list[Any] = orjson.loads(_stored(service, key, "previous_response_id").messages)
    return messages


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


def _frame(
    body: ResponsesBody, response_id: str, model: str, params: SamplingParams, choice: Any, stored: bool
) -> dict[str, Any]:
    """The response before it has said anything."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": None if body.max_output_tokens is None else params.max_new_tokens,
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": stored,
        "temperature": params.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": choice,
        "tools": [to_builtins(tool) for tool in body.tools or ()],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }
