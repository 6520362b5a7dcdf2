"""SGLang's names. Those that end as ours do are ours, with its labels and its buckets."""

from ramet.runtime.metrics import buckets
from ramet.runtime.metrics.names import Level, ModelLabels, Names, Row, Spread, Total, one
from ramet.runtime.metrics.table import Counter, Gauge, Histogram, Metrics

PREFIX = "sglang:"
BOUNDS = {
    "time_to_first_token_seconds": buckets.SGLANG_FIRST_TOKEN,
    "inter_token_latency_seconds": buckets.SGLANG_TOKEN_GAP,
    "e2e_request_latency_seconds": buckets.SGLANG_LATENCY,
    "queue_time_seconds": buckets.SGLANG_QUEUE,
    "prompt_tokens_histogram": buckets.TOKENS,
    "generation_tokens_histogram": buckets.TOKENS,
}
SAME = (
    *BOUNDS, "num_requests", "num_aborted_requests", "prompt_tokens", "cached_tokens", "generation_tokens",
    "num_retracted_requests", "evicted_tokens", "num_running_reqs", "num_queue_reqs", "num_used_tokens",
    "max_total_num_tokens", "gen_throughput", "num_grammar_queue_reqs", "token_usage", "cache_hit_rate",
    "num_streaming_sessions", "streaming_session_held_tokens",
)  # fmt: skip


def _same(own: Gauge | Histogram) -> Row:
    name, about = own.name, own.about
    match own:
        case Counter():
            return Total(name, about, lambda _: own.values, own.labels)
        case Gauge():
            return Level(name, about, lambda _: own.values, own.labels)
        case Histogram():
            return Spread(name, about, lambda _: own, BOUNDS[name])


FURTHER: tuple[Row, ...] = (
    Level(
        "kv_available_tokens",
        "slots of the KV pool that nothing holds but the prefix cache",
        lambda m: one(m.scheduler["total_tokens"].total - m.scheduler["used_tokens"].total),
    ),
    Level(
        "kv_evictable_tokens",
        "slots of the KV pool that only the prefix cache holds",
        lambda m: one(m.scheduler["evictable_tokens"].total),
    ),
    Level("kv_used_tokens", "slots of the KV pool that are held", lambda m: one(m.scheduler["used_tokens"].total)),
)


def table(metrics: Metrics, served: ModelLabels) -> Names:
    labels = {
        "model_name": served.model_name, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "dp_rank": "0",
    }  # fmt: skip
    same = tuple(_same(row) for row in metrics.rows() if row.name in SAME)
    return Names(PREFIX, same + FURTHER, labels, metrics)
