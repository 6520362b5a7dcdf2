"""Endpoints for operators: the model, the options, the scheduler's state, flush, abort.

The state comes from the scheduler with each request; no copy of it is kept here.
"""

import math
from typing import Annotated, Any

import orjson
from aiohttp import web
from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from ramet.ipc.messages import ControlReply
from ramet.ipc.params import about, shown
from ramet.runtime.config import Args
from ramet.runtime.errors import ClientError
from ramet.runtime.server.http.exchange import read_body, respond
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.native.replies import AbortReply, Flushed, ModelInfo, RequestState, ServerInfo
from ramet.version import __version__

MAX_FLUSH_WAIT_S = 3600.0
ELSEWHERE = {"state": "in transit", "reason": "the scheduler does not hold it: it is being tokenised or detokenised"}


class AbortBody(Struct, frozen=True, kw_only=True):
    rid: Annotated[str | None, about("of the request; exactly as it was given", minLength=1)] = None
    abort_all: Annotated[bool | None, about("every request")] = None


async def model_info(service: Service, request: web.Request) -> web.Response:
    """The model: where it lies, its served name, context length, vocabulary and hidden size."""
    args, limits = service.args, service.client.limits
    return respond(
        ModelInfo(
            model_path=str(args.model_folder),
            tokenizer_path=str(args.tokenizer_folder),
            served_model_name=args.model_name,
            context_length=limits.context_length,
            vocab_size=limits.vocab_size,
            hidden_size=limits.hidden_size,
        )
    )


async def server_info(service: Service, request: web.Request) -> web.Response:
    """Every resolved option, the limits that model and memory gave, and the scheduler's live state."""
    state = await service.client.state()
    args, limits = service.args, service.client.limits
    info = ServerInfo(
        model_path=str(args.model_folder),
        tokenizer_path=str(args.tokenizer_folder),
        served_model_name=args.model_name,
        context_length=limits.context_length,
        max_total_num_tokens=limits.max_total_tokens,
        max_running_requests=limits.max_running_requests,
        vocab_size=limits.vocab_size,
        sampling_defaults_resolved=asdict(service.defaults),
        version=__version__,
        started=service.started,
        internal_states=[_object(state)],
    )
    resolved = {**orjson.loads(limits.resolved), **service.style.resolved}
    return respond({**options(args), **resolved, **asdict(info)})


async def flush_cache(service: Service, request: web.Request) -> web.Response:
    """Forget every cached prefix. Works when nothing runs; `timeout` seconds to wait for that."""
    reply = await service.client.flush_cache(_seconds(request.query.get("timeout", "0")))
    if not reply.ok:
        raise ClientError("", f"The cache was not flushed: {_object(reply)['error']}")
    return respond(Flushed())


async def abort_request(service: Service, request: web.Request) -> web.Response:
    """End the sequences of a request: {"rid": ID} (exact match) or {"abort_all": true}."""
    body = await read_body(request, AbortBody)
    if body.abort_all:
        return respond(AbortReply(service.client.abort(None, "aborted with every other request")))
    if not body.rid:
        raise ClientError("rid", f"is {shown(body.rid)}, must be the id of a request", "or set abort_all to true")
    return respond(AbortReply(service.client.abort(body.rid, "aborted by /abort_request")))


async def where(service: Service, request: web.Request, rid: str) -> web.Response:
    """State of one request, and why it waits."""
    uids = service.client.uids_of(rid)
    if not uids:
        raise ClientError("id", f"is {shown(rid)}: no such request is open", status=404)
    replies = [await service.client.locate(uid) for uid in uids]
    sequences = [_object(reply) if reply.ok else ELSEWHERE for reply in replies]
    first = sequences[0]
    return respond({**first, **asdict(RequestState(rid, first["state"], sequences))})


def options(args: Args) -> dict[str, Any]:
    """All options by their names, flat. A key is never shown."""
    flat: dict[str, Any] = {}
    for group in to_builtins(args).values():
        flat |= group
    return {**flat, "api_key": "set" if args.serve.api_key else ""}


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_FLUSH_WAIT_S:
        raise ClientError("timeout", f"is {shown(text)}, must be seconds in [0, {MAX_FLUSH_WAIT_S:g}]")
    return value


def _object(reply: ControlReply) -> dict[str, Any]:
    value = orjson.loads(reply.body)
    assert isinstance(value, dict), f"a control reply holds a JSON object, not {value!r}"
    return value
