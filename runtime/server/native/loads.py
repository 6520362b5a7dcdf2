"""GET /v1/loads: how busy the server is, for routers and autoscalers that ask every second.

Answered from what the scheduler said last, so a question costs it nothing and never waits behind work. It speaks at
most once a second while it works, and once more when it becomes idle; `timestamp` of a load says when that was. Of the
fields that SGLang has, `decode_moments` (sums for a fit of its own) is left out.
"""

from datetime import UTC, datetime

import orjson
from aiohttp import web
from msgspec import UNSET, UnsetType, field
from msgspec.structs import asdict

from ramet.ipc.control import MemoryTag
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.reply import Reply
from ramet.runtime.metrics.table import PREFIX
from ramet.runtime.server.http.exchange import respond
from ramet.runtime.server.http.service import Service
from ramet.version import __version__

SECTIONS = ("core", "memory", "queues", "lora", "spec", "disagg")
FORMATS = ("json", "prometheus")
GB = 1 << 30
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class MemoryLoad(Reply, frozen=True, kw_only=True):
    """0 while it is released. `graph_gb`: what prepared steps hold is not counted."""

    weight_gb: float
    kv_cache_gb: float
    graph_gb: float = 0.0
    token_capacity: int


class QueuesLoad(Reply, frozen=True, kw_only=True):
    """`grammar`: sequences whose constraint is being compiled. `retracted`: among the first 512 that wait."""

    waiting: int
    grammar: int
    paused: int
    retracted: int
    prealloc_ready: int = 0


class LoraLoad(Reply, frozen=True, kw_only=True):
    slots_used: int
    slots_total: int
    utilization: float


class Load(Reply, frozen=True, kw_only=True):
    """Requests are sequences. Of the sections those are there that were asked for; null: nothing of the kind is built.

    `num_total_tokens`: those in use and those that wait. `num_active_tokens`: of running sequences alone.
    `utilization`: the larger of the shares of the pool and of the running sequences that there may be.
    `cache_hit_rate`: of all prompt tokens so far.
    """

    timestamp: float
    dp_rank: int = 0
    num_running_reqs: int
    num_waiting_reqs: int
    num_waiting_uncached_tokens: int
    num_used_tokens: int
    num_total_tokens: int
    num_active_tokens: int
    max_total_num_tokens: int
    max_running_requests: int
    token_usage: float
    gen_throughput: float
    cache_hit_rate: float
    utilization: float
    total_prefill_uncached_tokens: int
    total_prefill_busy_us: int
    memory: MemoryLoad | UnsetType = UNSET
    queues: QueuesLoad | UnsetType = UNSET
    adapters: LoraLoad | UnsetType = field(default=UNSET, name="lora")
    speculative: UnsetType | None = UNSET
    disaggregation: UnsetType | None = UNSET


class Loads(Reply, frozen=True, kw_only=True):
    timestamp: str
    version: str = __version__
    accelerator: str
    num_accelerators: int = 1
    loads: list[Load]


async def loads(service: Service, request: web.Request) -> web.Response:
    """How busy the server is, as the scheduler said last: `include` sections, `format` json or prometheus."""
    query = request.query
    sections = _sections(query.getall("include", []))
    rank, form = query.get("dp_rank", "0"), query.get("format", "json")
    if rank != "0":
        raise ClientError("dp_rank", f"is {shown(rank)}, must be 0, the only one there is", "omit it")
    if form not in FORMATS:
        raise ClientError("format", f"is {shown(form)}, must be one of {', '.join(FORMATS)}")
    load, resolved = _load(service, sections), _resolved(service)
    if form == "prometheus":
        return web.Response(body="".join(_lines(load)).encode(), headers={"Content-Type": TEXT})
    now = datetime.now(UTC).isoformat()
    return respond(Loads(timestamp=now, accelerator=str(resolved.get("device", "none")), loads=[load]))


def _sections(given: list[str]) -> set[str]:
    """Those that are asked for; core always is."""
    words = {word for text in given for word in text.replace(" ", "").split(",") if word} or {"all"}
    for word in sorted(words):
        if word not in (*SECTIONS, "all"):
            raise ClientError("include", f"is {shown(word)}, must be some of {', '.join(SECTIONS)}, all")
    return set(SECTIONS) if "all" in words else words


def _resolved(service: Service) -> dict[str, object]:
    found: dict[str, object] = orjson.loads(service.client.limits.resolved)
    return found


def _load(service: Service, sections: set[str]) -> Load:
    stats, limits = service.client.stats.newest, service.client.limits
    total = limits.max_total_tokens
    usage, prompt_tokens = stats.used_tokens / total, stats.cached_tokens + stats.prefill_tokens
    return Load(
        timestamp=round(service.client.stats.at_s, 3),
        num_running_reqs=stats.running_requests,
        num_waiting_reqs=stats.waiting_requests,
        num_waiting_uncached_tokens=max(0, stats.waiting_uncached_tokens) + stats.prefill_left_tokens,
        num_used_tokens=stats.used_tokens,
        num_total_tokens=stats.used_tokens + stats.waiting_tokens,
        num_active_tokens=stats.leased_tokens + stats.owned_tokens,
        max_total_num_tokens=total,
        max_running_requests=limits.max_running_requests,
        token_usage=round(usage, 4),
        gen_throughput=round(stats.last_gen_throughput, 2),
        cache_hit_rate=round(stats.cached_tokens / prompt_tokens, 4) if prompt_tokens else 0.0,
        utilization=round(max(usage, stats.running_requests / limits.max_running_requests), 4),
        total_prefill_uncached_tokens=stats.prefill_tokens,
        total_prefill_busy_us=int(stats.prefill_seconds * 1e6),
        memory=_memory(service) if "memory" in sections else UNSET,
        queues=_queues(service) if "queues" in sections else UNSET,
        adapters=_lora(service) if "lora" in sections else UNSET,
        speculative=None if "spec" in sections else UNSET,
        disaggregation=None if "disagg" in sections else UNSET,
    )


def _memory(service: Service) -> MemoryLoad:
    resolved, released = _resolved(service), service.client.admin.pauses.released
    sizes = ((MemoryTag.WEIGHTS, "weight_bytes"), (MemoryTag.KV_CACHE, "kv_pool_bytes"))
    weights, pool = (0.0 if tag in released else _gb(resolved.get(name, 0)) for tag, name in sizes)
    return MemoryLoad(weight_gb=weights, kv_cache_gb=pool, token_capacity=service.client.limits.max_total_tokens)


def _gb(num_bytes: object) -> float:
    assert isinstance(num_bytes, int), f"{num_bytes!r} is no number of bytes"
    return round(num_bytes / GB, 6)


def _queues(service: Service) -> QueuesLoad:
    stats = service.client.stats.newest
    waiting, compiling = stats.waiting_requests, stats.compiling_requests
    paused, retracted = stats.paused_requests, stats.retracted_requests
    return QueuesLoad(waiting=waiting, grammar=compiling, paused=paused, retracted=retracted)


def _lora(service: Service) -> LoraLoad:
    used, total = service.client.stats.newest.adapters_in_slots, service.args.adapters.max_loras_per_batch
    return LoraLoad(slots_used=used, slots_total=total, utilization=round(used / total, 4))


def _lines(load: Load) -> list[str]:
    """A gauge for each number, in Prometheus' text format; those of a section have its name before their own."""
    numbers = {name: value for name, value in asdict(load).items() if isinstance(value, int | float)}
    for section, found in (("memory", load.memory), ("queues", load.queues), ("lora", load.adapters)):
        if not isinstance(found, UnsetType):
            numbers |= {f"{section}_{name}": value for name, value in asdict(found).items()}
    del numbers["dp_rank"]
    lines = []
    for name, value in numbers.items():
        lines.append(f'# TYPE {PREFIX}{name} gauge\n{PREFIX}{name}{{dp_rank="{load.dp_rank}"}} {value}\n')
    return lines
