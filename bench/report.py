"""Figures as people read them (the table that serving benchmarks of this kind have always printed) and as JSON lines.

The first block has the rows, labels and widths of the reference, byte for byte, so that scripts which read it go on
working; what ramet measures beyond stands below its closing rule.
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ramet.bench.metrics import LoadMetrics, Percentiles

WIDTH = 50
LABEL = 41  # characters before a value
RESULTS_HELP = "JSON lines; default: bench/results/ of the checkout, without one the current folder"
_ROOT = Path(__file__).resolve().parent.parent


def table(m: LoadMetrics) -> str:
    return "\n".join([*_reference_rows(m), *_further_rows(m)])


def results_file(bench: str, root: Path = _ROOT) -> Path:
    """Where a bench's figures go by default: never into an installed package."""
    folder = root / "bench" / "results" if (root / "pyproject.toml").is_file() else Path()
    return folder / f"{bench}.jsonl"


def append_line(path: Path, record: dict[str, Any]) -> None:
    """One run is one line; a file only ever grows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def metrics_record(m: LoadMetrics) -> dict[str, Any]:
    record = dataclasses.asdict(m)
    record["request_rate"] = _rate(m.request_rate)  # JSON has no infinity
    return record


def _reference_rows(m: LoadMetrics) -> Iterator[str]:
    yield f"{' Serving Benchmark Result ':=^{WIDTH}}"
    yield _row("Backend:", m.backend)
    yield _row("Traffic request rate:", str(_rate(m.request_rate)))
    yield _row("Successful requests:", m.completed)
    yield _row("Benchmark duration (s):", m.duration_s)
    yield _row("Total input tokens:", m.input_tokens)
    yield _row("Total generated tokens:", m.output_tokens)
    yield _row("Total generated tokens (retokenized):", m.retokenized_tokens)
    yield _row("Request throughput (req/s):", m.request_throughput)
    yield _row("Input token throughput (tok/s):", m.input_throughput)
    yield _row("Output token throughput (tok/s):", m.output_throughput)
    yield _title("End-to-End Latency")
    yield _row("Mean E2E Latency (ms):", m.e2e_ms.mean)
    yield _row("Median E2E Latency (ms):", m.e2e_ms.median)
    for title, name, values in _token_times(m):
        yield _title(title)
        yield _row(f"Mean {name} (ms):", values.mean)
        yield _row(f"Median {name} (ms):", values.median)
        yield _row(f"P99 {name} (ms):", values.p99)
    yield "=" * WIDTH


def _further_rows(m: LoadMetrics) -> Iterator[str]:
    yield _row("Failed requests:", m.failed)
    yield _row("Max request concurrency:", m.max_concurrency if m.max_concurrency else "not limited")
    yield _row("Mean concurrency:", m.concurrency)
    yield _row("Cached input tokens:", m.cached_tokens)
    for name, values in (("E2E Latency", m.e2e_ms), *((name, values) for _, name, values in _token_times(m))):
        shown = " / ".join(f"{v:.2f}" for v in (values.p90, values.p95, values.p99))
        yield _row(f"P90/P95/P99 {name} (ms):", shown)
    yield _row("Max ITL (ms):", m.max_gap_ms)
    yield "=" * WIDTH
    for message, count in m.errors.items():
        yield f"{count} failed: {message}"


def _token_times(m: LoadMetrics) -> list[tuple[str, str, Percentiles]]:
    return [
        ("Time to First Token", "TTFT", m.ttft_ms),
        ("Time per Output Token (excl. 1st token)", "TPOT", m.tpot_ms),
        ("Inter-token Latency", "ITL", m.itl_ms),
    ]


def _row(label: str, value: object) -> str:
    return f"{label:<{LABEL}}{value:.2f}" if isinstance(value, float) else f"{label:<{LABEL}}{value}"


def _title(text: str) -> str:
    return f"{text:-^{WIDTH}}"


def _rate(rate: float) -> str | float:
    return "inf" if rate == float("inf") else rate
