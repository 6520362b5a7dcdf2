"""Our dashboard for Grafana, as JSON that is imported or provisioned: deploy/grafana/dashboards/ramet.json.

A panel is a line of PANELS. Decides places and how a panel looks. `$instance`, which Prometheus
gives every number, is chosen in the dashboard.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

UID = "ramet-server"
SCHEMA = 41
COLUMNS = 24
HEIGHT = 8
DATASOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
WHERE = 'instance=~"$instance"'


class Panel(NamedTuple):
    """`queries`: by what the legend calls each; {{label}} in a legend is Grafana's."""

    title: str
    unit: str  # as Grafana calls it
    queries: dict[str, str]
    about: str = ""
    kind: str = "timeseries"
    width: int = 8
    is_stacked: bool = False


class Section(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


def level(name: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (ramet:{name}{{{WHERE}}})"


def rate(name: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate(ramet:{name}{{{WHERE}}}[$__rate_interval]))"


def quantiles(name: str) -> dict[str, str]:
    """The middle and the slow ends of a histogram."""
    return {
        f"p{round(q * 100)}": f"histogram_quantile({q:g}, {rate(f'{name}_bucket', 'le')})" for q in (0.5, 0.9, 0.99)
    }


def mean(name: str) -> str:
    return f"{rate(f'{name}_sum')} / {rate(f'{name}_count')}"


SECTIONS = (
    Section(
        "Now",
        (
            Panel("Tokens per second", "none", {"": level("gen_throughput")}, kind="stat", width=4),
            Panel("Running", "none", {"": level("num_running_reqs")}, kind="stat", width=4),
            Panel("Waiting", "none", {"": level("num_queue_reqs")}, kind="stat", width=4),
            Panel("KV pool", "percentunit", {"": f"max(ramet:token_usage{{{WHERE}}})"}, kind="stat", width=4),
            Panel("Cache hit rate", "percentunit", {"": f"avg(ramet:cache_hit_rate{{{WHERE}}})"}, kind="stat", width=4),
            Panel("First token, p99", "s", {"": quantiles("time_to_first_token_seconds")["p99"]}, kind="stat", width=4),
        ),
    ),
    Section(
        "Latency",
        (
            Panel("First token", "s", quantiles("time_to_first_token_seconds")),
            Panel("Between two tokens", "s", quantiles("inter_token_latency_seconds")),
            Panel("Whole sequence", "s", quantiles("e2e_request_latency_seconds")),
            Panel("In the queue", "s", quantiles("queue_time_seconds")),
            Panel(
                "Where a sequence spends its time",
                "s",
                {
                    "queue": mean("queue_time_seconds"),
                    "prefill": mean("prefill_time_seconds"),
                    "decode": mean("decode_time_seconds"),
                },
                "means of the sequences that ended",
                is_stacked=True,
            ),
            Panel("Token time of a sequence", "s", quantiles("time_per_output_token_seconds")),
        ),
    ),
    Section(
        "Throughput",
        (
            Panel(
                "Tokens",
                "none",
                {
                    "new": rate("generation_tokens_total"),
                    "prompt, computed": rate("prefill_tokens_total"),
                    "prompt, cached": rate("cached_tokens_total"),
                },
                "per second",
            ),
            Panel(
                "Sequences that ended",
                "none",
                {"{{finish_reason}}": rate("finished_requests_total", "finish_reason")},
                "per second",
            ),
            Panel("Tokens of a step", "none", {**quantiles("step_tokens"), "mean": mean("step_tokens")}),
            Panel("Steps", "none", {"steps": rate("scheduler_steps_total")}, "per second"),
            Panel("Prompt length", "none", quantiles("prompt_tokens_histogram"), "tokens"),
            Panel("Output length", "none", quantiles("generation_tokens_histogram"), "tokens"),
        ),
    ),
    Section(
        "Queue and memory",
        (
            Panel(
                "Running and waiting",
                "none",
                {
                    "running": level("num_running_reqs"),
                    "waiting": level("num_queue_reqs"),
                    "constraint is being compiled": level("num_grammar_queue_reqs"),
                },
            ),
            Panel(
                "What they wait for",
                "none",
                {"{{reason}}": level("num_queue_reqs_by_reason", "reason")},
                "docs/metrics.md explains the reasons",
                is_stacked=True,
            ),
            Panel("Retractions", "none", {"retractions": rate("num_retracted_requests_total")}, "per second"),
            Panel(
                "KV pool",
                "none",
                {
                    "held": level("num_used_tokens"),
                    "cached, can be evicted": level("num_evictable_tokens"),
                    "all": level("max_total_num_tokens"),
                },
                "tokens",
            ),
            Panel("Evictions", "none", {"tokens": rate("evicted_tokens_total")}, "tokens per second"),
            Panel(
                "Share of prompts found in the cache",
                "percentunit",
                {"of prompt tokens": f"{rate('cached_tokens_total')} / {rate('prompt_tokens_total')}"},
            ),
            Panel(
                "Sessions",
                "none",
                {"open": level("num_sessions"), "streaming ones": level("num_streaming_sessions")},
            ),
            Panel(
                "Tokens of sessions",
                "none",
                {"kept": level("session_tokens"), "held in the cache": level("streaming_session_held_tokens")},
                "tokens",
            ),
            Panel("Memory of constraints", "bytes", {"of sequences": level("constraint_bytes")}, "estimated"),
        ),
    ),
    Section(
        "Pictures, films and sound",
        (
            Panel("Prepared", "none", {"{{kind}}": rate("media_pieces_total", "kind")}, "per second"),
            Panel(
                "Workers at them",
                "none",
                {"{{kind}}": rate("media_seconds_total", "kind")},
                "workers that decode and process, refused ones as well, on average",
                is_stacked=True,
            ),
            Panel(
                "Pieces",
                "none",
                {"that wait for a worker": level("num_media_queue"), "that requests need": level("num_media_in_use")},
            ),
            Panel("Tokens through towers", "none", {"tokens": rate("tower_tokens_total")}, "per second"),
            Panel("Features found computed", "none", {"pieces": rate("media_features_found_total")}, "per second"),
            Panel(
                "Memory",
                "bytes",
                {"prepared, in files": level("media_file_bytes"), "features": level("media_cache_bytes")},
            ),
        ),
    ),
    Section(
        "HTTP",
        (
            Panel(
                "Answers",
                "none",
                {"{{endpoint}} {{status}}": rate("http_requests_total", "endpoint, status")},
                "per second",
                width=16,
            ),
            Panel("Aborted or refused", "none", {"sequences": rate("num_aborted_requests_total")}, "per second"),
            Panel(
                "Log lines dropped",
                "none",
                {"{{output}}": rate("log_lines_dropped_total", "output")},
                "per second: they come faster than they are written, or whoever should read them does not",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    return {
        "id": None,
        "uid": UID,
        "title": "ramet",
        "tags": ["ramet", "llm"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_datasource_variable(), _instance_variable()]},
        "panels": list(_panels()),
    }


def _datasource_variable() -> dict[str, Any]:
    """Which Prometheus is asked; the first one, until another is chosen."""
    return {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _instance_variable() -> dict[str, Any]:
    query = "label_values(ramet:num_running_reqs, instance)"
    return {
        "name": "instance", "label": "Server", "type": "query", "datasource": DATASOURCE, "definition": query,
        "query": {"query": query, "refId": "instance"}, "refresh": 2, "includeAll": True, "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for section in SECTIONS:
        number += 1
        yield {
            "id": number, "type": "row", "title": section.title, "collapsed": False, "panels": [],
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        }  # fmt: skip
        x, y = 0, y + 1
        for panel in section.panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + HEIGHT
            number += 1
            height = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
            yield _panel(panel, number, {"h": height, "w": panel.width, "x": x, "y": y})
            x += panel.width
        y += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    custom = {"fillOpacity": 25, "stacking": {"mode": "normal"}} if panel.is_stacked else {"fillOpacity": 0}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, **({"custom": custom} if panel.kind == "timeseries" else {})},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": DATASOURCE, "expr": expr, "legendFormat": legend or "__auto"}
            for i, (legend, expr) in enumerate(panel.queries.items())
        ],
    }


def as_json() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"
