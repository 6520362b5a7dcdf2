"""The scheduler's counters: one table of which Stats, its log lines, /metrics, /get_server_info and the docs are made.

A counter is a field here and a line of `Reporter.stats` (runtime/scheduler/process/report.py). With a metric it is
published at /metrics under that name; without one it is shown by /get_server_info alone.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, get_type_hints

import msgspec

from ramet.ipc.message import Message

STEP_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)  # tokens of a step


class MetricKind(Enum):
    COUNTER = "counter"  # only grows
    GAUGE = "gauge"


class WaitKind(Enum):
    """What a sequence waits for before it is admitted."""

    ARRIVAL = "just_arrived"  # no step was planned since
    ROWS = "rows"  # --max-running-requests
    PREFILL_BUDGET = "prefill_budget"  # --chunked-prefill-size
    PACE = "pace"  # --max-itl-ms
    MEMORY = "memory"
    RETRACTION = "retraction"  # running ones gave their memory back in the last step, so nobody was asked
    PREFIX = "prefix"  # another sequence is computing what it can use
    CONTEXTS = "contexts"  # a step that looks its contexts up
    ADAPTERS = "adapters"  # --max-loras-per-batch
    MEDIA = "media"  # features of its pictures, films and sound
    PENALTIES = "penalties"  # --max-penalised-requests
    PAUSE = "pause"  # whatever it waited for before
    WEIGHTS = "weights"  # other weights, which are about to take the place of those that are served
    PROGRAMS = "programs"  # memory is kept for what programs that have begun may add


@dataclass(frozen=True)
class Metric:
    """How a field of Stats is published."""

    field: str
    name: str
    kind: MetricKind
    about: str


def _counter(name: str, about: str) -> msgspec.Meta:
    return msgspec.Meta(description=about, extra={"metric": name, "kind": MetricKind.COUNTER})


def _gauge(name: str, about: str) -> msgspec.Meta:
    return msgspec.Meta(description=about, extra={"metric": name, "kind": MetricKind.GAUGE})


class Stats(Message, frozen=True):
    """scheduler -> server, at most once a second and whenever it becomes idle. Tokens are slots of the KV pool."""

    prefill_tokens: Annotated[int, _counter("prefill_tokens", "prompt tokens computed by the model")] = 0
    retractions: Annotated[int, _counter("num_retracted_requests", "times a running sequence gave its memory back")] = 0
    evicted_tokens: Annotated[int, _counter("evicted_tokens", "tokens evicted from the prefix cache")] = 0
    steps: Annotated[int, _counter("scheduler_steps", "steps of the scheduler")] = 0
    discarded_tokens: Annotated[
        int, _counter("discarded_tokens", "tokens drawn ahead for sequences that had ended meanwhile")
    ] = 0
    forced_tokens: Annotated[
        int, _counter("jump_forward_tokens", "output tokens that a constraint left no choice about and no step drew")
    ] = 0
    tower_tokens: Annotated[
        int, _counter("tower_tokens", "tokens of media whose features towers computed or clients gave")
    ] = 0
    found_media: Annotated[
        int, _counter("media_features_found", "pieces of media whose features a request found computed already")
    ] = 0
    media_cache_bytes: Annotated[int, _gauge("media_cache_bytes", "bytes of features of media that are kept")] = 0
    running_requests: Annotated[int, _gauge("num_running_reqs", "sequences in the running batch")] = 0
    waiting_requests: Annotated[int, _gauge("num_queue_reqs", "sequences that wait for admission")] = 0
    used_tokens: Annotated[
        int, _gauge("num_used_tokens", "slots of the KV pool that running sequences or clients hold")
    ] = 0
    total_tokens: Annotated[int, _gauge("max_total_num_tokens", "slots of the KV pool")] = 0
    evictable_tokens: Annotated[
        int, _gauge("num_evictable_tokens", "slots of the KV pool that only the prefix cache holds")
    ] = 0
    last_gen_throughput: Annotated[
        float, _gauge("gen_throughput", "tokens generated per second, as the scheduler last measured")
    ] = 0.0
    compiling_requests: Annotated[
        int, _gauge("num_grammar_queue_reqs", "sequences whose constraint is being compiled")
    ] = 0
    constraint_bytes: Annotated[
        int, _gauge("constraint_bytes", "bytes of compiled constraints that sequences have, estimated")
    ] = 0
    waiting_by_reason: tuple[tuple[str, int], ...] = ()  # by WaitKind; they sum to waiting_requests
    step_sizes: tuple[int, ...] = ()  # steps by the tokens that they computed: up to each of STEP_BOUNDS, and above
    step_tokens: int = 0  # that all steps computed
    paused_requests: Annotated[
        int, _gauge("num_paused_reqs", "sequences that run or wait while generation is paused")
    ] = 0
    paused: str = ""  # why no step is computed, whoever waits; empty: steps go on
    waiting_tokens: int = 0  # of the sequences that wait
    waiting_uncached_tokens: int = 0  # those of them that are to be computed, as far as is known
    prefill_left_tokens: int = 0  # of prompts of running sequences that are not computed yet
    retracted_requests: int = 0  # among those that wait
    adapters_in_slots: int = 0
    prefill_seconds: float = 0.0  # of the steps that computed prompts
    generated_tokens: int = 0
    finished_requests: int = 0
    cached_tokens: int = 0  # prompt tokens that were found in the tree
    leased_tokens: int = 0  # locked in the tree by running requests
    prefix_leases: int = 0  # of clients
    prefix_lease_tokens: int = 0  # locked in the tree by them alone
    prefix_lease_limit: int = 0  # most tokens that clients may hold
    revoked_prefix_leases: int = 0  # that gave way to a request
    next_prefix_lease_end_s: float | None = None  # seconds from now; None: there is none
    owned_tokens: int = 0  # of running requests and steps in flight
    penalty_slots: int = 0  # taken
    cached_tokens_in_tree: int = 0
    free_tokens: int = 0
    lookups: int = 0  # of prefixes in the tree, by which the last use of its nodes is counted
    # of all steps: plan, forward, sample, results
    phase_seconds: dict[str, float] = msgspec.field(default_factory=dict)


def metrics_of_stats() -> list[Metric]:
    """The fields that are published, in their order."""
    hints: dict[str, Any] = get_type_hints(Stats, include_extras=True)
    metas = {name: getattr(hints[name], "__metadata__", (None,))[0] for name in Stats.__struct_fields__}
    return [
        Metric(field, meta.extra["metric"], meta.extra["kind"], meta.description)
        for field, meta in metas.items()
        if meta is not None
    ]
