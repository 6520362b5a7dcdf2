"""What the published dashboards of other servers ask Prometheus, one query for each panel's number, in our words.

`$model_name` and `$instance` are the dashboards' variables, `$__rate_interval` is Grafana's.
"""

import re

_SGLANG = 'model_name=~"$model_name", instance=~"$instance"'
_VLLM = 'model_name="$model_name"'


def _quantile(q: float, name: str, labels: str) -> str:
    return f"histogram_quantile({q:g}, sum by (le) (rate({name}_bucket{{{labels}}}[$__rate_interval])))"


def _mean(name: str, labels: str) -> str:
    total, num = (f"rate({name}_{part}{{{labels}}}[$__rate_interval])" for part in ("sum", "count"))
    return f"{total} / {num}"


def _rate(name: str, labels: str) -> str:
    return f"rate({name}{{{labels}}}[$__rate_interval])"


QUERIES = {
    "sglang": [
        *(_quantile(q, "sglang:e2e_request_latency_seconds", _SGLANG) for q in (0.99, 0.9, 0.5)),
        _mean("sglang:e2e_request_latency_seconds", _SGLANG),
        f"sum by (le) (increase(sglang:e2e_request_latency_seconds_bucket{{{_SGLANG}}}[$__rate_interval]))",
        *(_quantile(q, "sglang:time_to_first_token_seconds", _SGLANG) for q in (0.99, 0.9, 0.5)),
        _mean("sglang:time_to_first_token_seconds", _SGLANG),
        f"sum by (le) (increase(sglang:time_to_first_token_seconds_bucket{{{_SGLANG}}}[$__rate_interval]))",
        f"sglang:num_running_reqs{{{_SGLANG}}}",
        f"sglang:gen_throughput{{{_SGLANG}}}",
        f"sglang:cache_hit_rate{{{_SGLANG}}}",
        f"sglang:num_queue_reqs{{{_SGLANG}}}",
    ],
    "vllm": [
        *(_quantile(q, "vllm:e2e_request_latency_seconds", _VLLM) for q in (0.99, 0.95, 0.9, 0.5)),
        _mean("vllm:e2e_request_latency_seconds", _VLLM),
        *(_quantile(q, "vllm:time_to_first_token_seconds", _VLLM) for q in (0.99, 0.95, 0.9, 0.5)),
        _mean("vllm:time_to_first_token_seconds", _VLLM),
        *(_quantile(q, "vllm:inter_token_latency_seconds", _VLLM) for q in (0.99, 0.95, 0.9, 0.5)),
        _mean("vllm:inter_token_latency_seconds", _VLLM),
        *(_quantile(q, "vllm:request_time_per_output_token_seconds", _VLLM) for q in (0.99, 0.5)),
        _mean("vllm:request_time_per_output_token_seconds", _VLLM),
        _rate("vllm:prompt_tokens_total", _VLLM),
        _rate("vllm:generation_tokens_total", _VLLM),
        f"vllm:num_requests_running{{{_VLLM}}}",
        f"vllm:num_requests_waiting{{{_VLLM}}}",
        f"vllm:kv_cache_usage_perc{{{_VLLM}}}",
        f"sum by (finished_reason) (increase(vllm:request_success_total{{{_VLLM}}}[$__rate_interval]))",
        f"sum by (le) (increase(vllm:request_prompt_tokens_bucket{{{_VLLM}}}[$__rate_interval]))",
        f"sum by (le) (increase(vllm:request_generation_tokens_bucket{{{_VLLM}}}[$__rate_interval]))",
        _rate("vllm:request_queue_time_seconds_sum", _VLLM),
        _rate("vllm:request_prefill_time_seconds_sum", _VLLM),
        _rate("vllm:request_decode_time_seconds_sum", _VLLM),
        _rate("vllm:request_max_num_generation_tokens_sum", _VLLM),
        _rate("vllm:iteration_tokens_total_count", _VLLM),
        # read by older dashboards
        f"vllm:gpu_cache_usage_perc{{{_VLLM}}}",
        _quantile(0.99, "vllm:time_per_output_token_seconds", _VLLM),
        f"{_rate('vllm:gpu_prefix_cache_hits_total', _VLLM)} / {_rate('vllm:gpu_prefix_cache_queries_total', _VLLM)}",
    ],
}
# what the Kubernetes gateway's endpoint picker reads of each pod: queue, running requests, share of the KV cache, and
# of vLLM's which adapters are there and how large the pool is
GATEWAY = {
    "sglang": ["sglang:num_queue_reqs", "sglang:num_running_reqs", "sglang:token_usage"],
    "vllm": [
        "vllm:num_requests_waiting",
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
        "vllm:lora_requests_info",
        "vllm:cache_config_info",
    ],
}


def names_of(query: str) -> set[str]:
    return set(re.findall(r"[a-z]+:[a-z0-9_]+", query))


def labels_of(query: str) -> set[str]:
    """Those that a query filters or groups by."""
    filtered = {label for inside in re.findall(r"\{(.*?)\}", query) for label in re.findall(r"(\w+)=", inside)}
    return filtered | {label for inside in re.findall(r"by \((.*?)\)", query) for label in re.findall(r"\w+", inside)}


def filled_in(query: str, model_name: str, interval: str) -> str:
    """As Grafana would send it, for one model on any instance."""
    return query.replace("$model_name", model_name).replace("$instance", ".*").replace("$__rate_interval", interval)
