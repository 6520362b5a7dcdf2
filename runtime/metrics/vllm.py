"""vLLM's names, those that were renamed away and are still read by older dashboards among them."""

import time

from ramet.ipc.messages import FinishKind
from ramet.ipc.stats import STEP_BOUNDS, WaitKind
from ramet.runtime.metrics import buckets
from ramet.runtime.metrics.names import Level, ModelLabels, Names, Row, Spread, Total, Values, one
from ramet.runtime.metrics.table import DEVICE, Metrics

PREFIX = "vllm:"
DEFERRED = (WaitKind.PREFIX, WaitKind.CONTEXTS)  # there is room for who waits for these


def _waiting(metrics: Metrics) -> dict[str, float]:
    """By vLLM's two reasons. Who waits for its constraint counts, as there."""
    deferred = sum(metrics.waiting.values.get((kind.value,), 0) for kind in DEFERRED)
    waiting = metrics.scheduler["waiting_requests"].total
    return {
        "capacity": waiting - deferred,
        "deferred": deferred + metrics.scheduler["compiling_requests"].total,
    }


def _by_source(metrics: Metrics) -> Values:
    cached = metrics.cached_tokens.total
    return {
        ("local_compute",): metrics.prompt_tokens.total - cached,
        ("local_cache_hit",): cached,
        ("external_kv_transfer",): 0.0,
    }


def _ended(metrics: Metrics) -> Values:
    return {(kind.value,): metrics.ended.values.get((kind.value,), 0.0) for kind in FinishKind}


ROWS: tuple[Row, ...] = (
    Level("num_requests_running", "sequences that run", lambda m: one(m.scheduler["running_requests"].total)),
    Level("num_requests_waiting", "sequences that wait", lambda m: one(sum(_waiting(m).values()))),
    Level(
        "num_requests_waiting_by_reason",
        "sequences that wait: for room (capacity), or for another's prefix or their constraint (deferred)",
        lambda m: {(reason,): num for reason, num in _waiting(m).items()},
        ("reason",),
    ),
    Level("kv_cache_usage_perc", "share of the KV pool that is held, 1 is all", lambda m: m.token_usage.values),
    Level("gpu_cache_usage_perc", "the older name of kv_cache_usage_perc", lambda m: m.token_usage.values),
    Total("prefix_cache_queries", "prompt tokens that were looked up", lambda m: m.prompt_tokens.values),
    Total("prefix_cache_hits", "prompt tokens that were found", lambda m: one(m.cached_tokens.total)),
    Total("gpu_prefix_cache_queries", "the older name of prefix_cache_queries", lambda m: m.prompt_tokens.values),
    Total("gpu_prefix_cache_hits", "the older name of prefix_cache_hits", lambda m: one(m.cached_tokens.total)),
    Total("num_preemptions", "retractions", lambda m: one(m.scheduler["retractions"].total)),
    Total("prompt_tokens", "prompt tokens", lambda m: m.prompt_tokens.values),
    Total("prompt_tokens_by_source", "prompt tokens by how they came to be computed", _by_source, ("source",)),
    Total("prompt_tokens_cached", "prompt tokens that were found", lambda m: one(m.cached_tokens.total)),
    Total(
        "prompt_tokens_cached_by_source",
        "prompt tokens by where they were found",
        lambda m: {(DEVICE,): m.cached_tokens.total},
        ("source",),
    ),
    Total("generation_tokens", "new tokens", lambda m: m.generated_tokens.values),
    Total("request_success", "sequences that ended", _ended, ("finished_reason",)),
    Spread("request_prompt_tokens", "tokens of a prompt", lambda m: m.timing.prompt_lengths, buckets.TOKENS),
    Spread("request_generation_tokens", "new tokens of a sequence", lambda m: m.timing.output_lengths, buckets.TOKENS),
    Spread("iteration_tokens_total", "tokens of a step", lambda m: m.step_tokens, STEP_BOUNDS),
    Spread(
        "request_max_num_generation_tokens",
        "new tokens of the longest sequence of a request",
        lambda m: m.timing.longest_outputs,
        buckets.TOKENS,
    ),
    Spread(
        "time_to_first_token_seconds",
        "until the first token",
        lambda m: m.timing.first_token_s,
        buckets.VLLM_FIRST_TOKEN,
    ),
    Spread("inter_token_latency_seconds", "between two tokens", lambda m: m.timing.token_gap_s, buckets.VLLM_TOKEN_GAP),
    Spread(
        "time_per_output_token_seconds",
        "the older name of inter_token_latency_seconds",
        lambda m: m.timing.token_gap_s,
        buckets.VLLM_TOKEN_GAP,
    ),
    Spread(
        "request_time_per_output_token_seconds",
        "mean time of a sequence's tokens after its first",
        lambda m: m.timing.token_time_s,
        buckets.VLLM_TOKEN_GAP,
    ),
    Spread("e2e_request_latency_seconds", "of a whole sequence", lambda m: m.timing.latency_s, buckets.VLLM_LATENCY),
    Spread("request_queue_time_seconds", "until admission", lambda m: m.timing.queue_s, buckets.VLLM_LATENCY),
    Spread(
        "request_prefill_time_seconds", "admission to first token", lambda m: m.timing.prefill_s, buckets.VLLM_LATENCY
    ),
    Spread("request_decode_time_seconds", "first token to end", lambda m: m.timing.decode_s, buckets.VLLM_LATENCY),
    Spread("request_inference_time_seconds", "admission to end", lambda m: m.timing.inference_s, buckets.VLLM_LATENCY),
)


def _of_model(served: ModelLabels) -> tuple[Row, ...]:
    """What is said in labels. The gateway takes the row of the latest time."""
    pool = f"{served.page_size}", f"{served.num_pages}"
    running, waiting = (",".join(sorted(names)) for names in (served.running_adapters, served.waiting_adapters))
    return (
        Level(
            "cache_config_info",
            "1; its labels say what the KV pool is",
            lambda _: {pool: 1.0},
            ("block_size", "num_gpu_blocks"),
        ),
        Level(
            "lora_requests_info",
            "the time (Unix, s); its labels name the adapters of sequences that run and that wait",
            lambda _: {(f"{served.max_adapters}", running, waiting): time.time()},
            ("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
        ),
    )


def table(metrics: Metrics, served: ModelLabels) -> Names:
    labels = {"model_name": served.model_name, "engine": "0"}
    return Names(PREFIX, ROWS + _of_model(served), labels, metrics)
