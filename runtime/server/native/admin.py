"""Endpoints for operators: health and metrics, the model, the options, the scheduler's state, flush, abort.

The state comes from the scheduler with each request; no copy of it is kept here.
"""

import asyncio
from typing import Annotated, Any, Literal

import orjson
from aiohttp import web
from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from ramet.ipc.content import Content
from ramet.ipc.control import MAX_LOCATED, ControlReply
from ramet.ipc.media import MediaKind
from ramet.ipc.messages import pack_ids
from ramet.ipc.params import SamplingParams, about, shown
from ramet.ipc.spec import RequestSpec
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.config import Args
from ramet.runtime.engine_client.admin import MAX_FLUSH_WAIT_S
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.embeddings import PREFILL_ONLY
from ramet.runtime.intake.fields import unbuilt
from ramet.runtime.intake.other_servers import CommandBody
from ramet.runtime.intake.reply import Reply
from ramet.runtime.metrics.compat import page_of
from ramet.runtime.metrics.names import ModelLabels
from ramet.runtime.options.option import SECRET
from ramet.runtime.server.http.exchange import read_command, respond
from ramet.runtime.server.http.query_numbers import number
from ramet.runtime.server.http.service import Service
from ramet.version import __version__

GENERATE_WITHIN_S = 20.0
ONE_TOKEN = SamplingParams(max_new_tokens=1, temperature=0.0, ignore_eos=True)
ELSEWHERE = {"state": "in transit", "reason": "the scheduler does not hold it: it is being tokenised or detokenised"}
AbortReason = Annotated[Any | None, unbuilt("what the client is told", neutral=("",))]
MAKING = {"state": "in transit", "reason": "its prompt is being made: media are prepared, and chats rendered"}


class Status(Reply, frozen=True):
    status: Literal["ok"] = "ok"


class ServedModel(Struct, frozen=True, kw_only=True):
    model_path: str
    tokenizer_path: str
    served_model_name: str
    context_length: int
    vocab_size: int


class ModelInfo(ServedModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    is_generation: bool = True
    preferred_sampling_params: None = None
    weight_version: str
    hidden_size: int
    has_image_understanding: bool
    has_video_understanding: bool
    has_audio_understanding: bool
    media_placeholders: dict[str, str]  # by kind: what stands for a piece in the text of a prompt


class ServerInfo(ServedModel, frozen=True, kw_only=True):
    """Beside these every option of `ramet serve` by its name."""

    max_total_num_tokens: int
    max_running_requests: int
    sampling_defaults_resolved: dict[str, Any]
    version: str
    started: int
    internal_states: list[dict[str, Any]]  # one; none for a key that is not the admin key


class Version(Reply, frozen=True):
    version: str = __version__


class Flushed(Reply, frozen=True):
    success: bool = True
    message: str = "Cache flushed."


class FlushBody(CommandBody, frozen=True, kw_only=True):
    timeout: Annotated[float | None, about("seconds to wait until nothing runs; may stand in the query as well")] = None


class AbortBody(CommandBody, frozen=True, kw_only=True):
    rid: Annotated[str | None, about("of the request; exactly as it was given", minLength=1)] = None
    abort_all: Annotated[bool | None, about("every request")] = None
    abort_message: AbortReason = None
    finished_reason: AbortReason = None


class AbortReply(Reply, frozen=True):
    """How many sequences are ended."""

    aborted: int


class RequestState(Struct, frozen=True):
    """The first sequence's keys, which depend on its state, and all sequences."""

    id: str
    state: str
    sequences: list[dict[str, Any]]


async def health(service: Service, request: web.Request) -> web.Response:
    """Whether no process has ended or hangs: 503 when steps stop for --watchdog-timeout although there is work.

    A busy server is well. The answer waits for nothing, and no token is computed.
    """
    service.client.check_alive()
    service.check_moves()
    return respond(Status())


async def version(service: Service, request: web.Request) -> web.Response:
    """The version of this server."""
    return respond(Version())


async def ready(service: Service, request: web.Request) -> web.Response:
    """Whether new requests are taken, and run."""
    service.client.check_ready()
    service.check_moves()
    _check_runs(service)
    return respond(Status())


async def health_generate(service: Service, request: web.Request) -> web.Response:
    """One token through every process; of a busy server, the next token of any request."""
    _check_runs(service)
    least = ONE_TOKEN if service.client.limits.generates else PREFILL_ONLY
    probe = Prompt(f"health-{prompts.new_id()}", RequestSpec(least), Content(ids=pack_ids([0])))
    with service.client.submit([probe], streaming=False, probe=True) as submission:
        try:
            await asyncio.wait_for(submission.during(service.client.admin.next_step()), GENERATE_WITHIN_S)
        except TimeoutError:
            raise ServerError(f"No token came within {GENERATE_WITHIN_S:g} s.", 503) from None
        except ClientError as error:
            raise ServerError(f"The probe was refused: {error}", 503) from None
    return respond(Status())


async def metrics(service: Service, request: web.Request) -> web.Response:
    """Prometheus metrics, as OpenMetrics for who accepts it."""
    args, page_size = service.args, service.args.cache.page_size
    num_pages = service.client.limits.max_total_tokens // page_size
    name, most = service.client.admin.weights.model_name, args.adapters.max_loras_per_batch
    running, waiting = service.client.admin.adapters_in_use()
    served = ModelLabels(name, page_size, num_pages, most, running, waiting)
    service.sessions.count(service.metrics)
    if service.client.media is not None:
        service.client.media.count(service.metrics)
    page = page_of(service.metrics, args.serve.metrics_compat, served)
    body, content_type = page.render(",".join(request.headers.getall("Accept", [])))
    return web.Response(body=body, headers={"Content-Type": content_type})


async def model_info(service: Service, request: web.Request) -> web.Response:
    """The model: where it lies, its served name, context length, vocabulary, hidden size, and which media it takes."""
    limits = service.client.limits
    version, size = service.client.admin.weights.version, limits.hidden_size
    of_model = _served_model(service)
    takes: Any = {f"has_{kind.value}_understanding": kind in limits.media for kind in MediaKind}
    takes["media_placeholders"] = {kind.value: token.placeholder for kind, token in limits.media.items()}
    made = ModelInfo(**of_model, is_generation=limits.generates, weight_version=version, hidden_size=size, **takes)
    return respond(made)


async def server_info(service: Service, request: web.Request) -> web.Response:
    """Every resolved option, the limits that model and memory gave, and, for the admin key, the scheduler's state."""
    limits = service.client.limits
    states = [_object(await service.client.admin.state())] if OWNER.get().is_admin else []
    info = ServerInfo(
        **_served_model(service),
        max_total_num_tokens=limits.max_total_tokens,
        max_running_requests=limits.max_running_requests,
        sampling_defaults_resolved=asdict(service.defaults),
        version=__version__,
        started=service.started,
        internal_states=states,
    )
    found = {**options(service.args), **_resolved(service.args), **orjson.loads(limits.resolved)}
    return respond({**found, **service.style.resolved, **asdict(info)})


async def flush_cache(service: Service, request: web.Request) -> web.Response:
    """Forget every cached prefix. Works when nothing runs; `timeout` seconds to wait for that."""
    body = await read_command(request, FlushBody, query=("timeout",))
    reply = await service.client.admin.flush_cache(_flush_wait(request.query.get("timeout", body.timeout or 0)))
    if not reply.ok:
        raise ClientError("", f"The cache was not flushed: {_object(reply)['error']}")
    return respond(Flushed())


async def abort_request(service: Service, request: web.Request) -> web.Response:
    """End the sequences of a request: {"rid": ID} (exact match) or {"abort_all": true}."""
    body = await read_command(request, AbortBody)
    if body.abort_all:
        if body.rid is not None:
            fact = f"is {shown(body.rid)}, but abort_all is true: which of them is meant is not clear"
            raise ClientError("rid", fact, "send one of the two")
        return respond(AbortReply(service.client.abort(None, "aborted with every other request")))
    if not body.rid:
        fact = "is missing" if body.rid is None else f"is {shown(body.rid)}, must be the id of a request"
        raise ClientError("rid", fact, "or set abort_all to true")
    return respond(AbortReply(service.client.abort(body.rid, "aborted by /abort_request")))


async def where(service: Service, request: web.Request, rid: str) -> web.Response:
    """State of one request, and why it waits."""
    uids = service.client.admin.uids_of(rid)
    if not uids and service.client.admin.is_making(rid):
        return respond({**MAKING, **asdict(RequestState(rid, MAKING["state"], []))})
    if not uids:
        raise ClientError("id", f"is {shown(rid)}: no such request is open", status=404)
    sequences: list[dict[str, Any]] = []
    for start in range(0, len(uids), MAX_LOCATED):
        reply = await service.client.admin.locate(uids[start : start + MAX_LOCATED])
        sequences += [found or ELSEWHERE for found in _object(reply)["sequences"]]
    first = sequences[0]
    return respond({**first, **asdict(RequestState(rid, first["state"], sequences))})


def options(args: Args) -> dict[str, Any]:
    """All options by their names, flat. Keys are never shown."""
    flat: dict[str, Any] = {}
    for group in to_builtins(args).values():
        flat |= group
    return {**flat, **{name: "set" if flat[name] else "" for name in SECRET}}


def _resolved(args: Args) -> dict[str, Any]:
    """The values of options that follow from others where they are not set."""
    return {
        "cache_isolation": "key" if args.keeps_keys_apart else "none",
        "max_share_per_key": args.share_per_key,
        "jump_forward": args.jump_forward,
        "max_bodies_mb": args.max_bodies_bytes / (1 << 20),
    }


def _check_runs(service: Service) -> None:
    if service.client.admin.pauses.is_paused:
        raise ServerError("Generation is paused (/pause_generation): requests wait until /continue_generation.", 503)
    if service.client.admin.pauses.released:
        raise ServerError("Memory is released: requests wait until /resume_memory_occupation.", 503)


def _served_model(service: Service) -> dict[str, Any]:
    """The fields of ServedModel."""
    args, limits, weights = service.args, service.client.limits, service.client.admin.weights
    return {
        "model_path": weights.path,
        "tokenizer_path": str(args.tokenizer_folder),
        "served_model_name": weights.model_name,
        "context_length": limits.context_length,
        "vocab_size": limits.vocab_size,
    }


def _flush_wait(given: str | float) -> float:
    value = number(given) if isinstance(given, str) else float(given)
    if not 0 <= value <= MAX_FLUSH_WAIT_S:
        raise ClientError("timeout", f"is {shown(given)}, must be seconds in [0, {MAX_FLUSH_WAIT_S:g}]")
    return value


def _object(reply: ControlReply) -> dict[str, Any]:
    value = orjson.loads(reply.body)
    assert isinstance(value, dict), f"a control reply holds a JSON object, not {value!r}"
    return value
