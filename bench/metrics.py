"""Timelines of requests -> the figures of a run, by the definitions at the top of serving.py. Knows no network.

Uses plain lists: a run of 3,000 requests of 512 tokens takes half a second to sum up, after the clock has stopped.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Timeline:
    """What happened to one request. Times are seconds of one monotonic clock."""

    start: float
    end: float = 0.0
    times: list[float] = field(default_factory=list)  # reads that brought new tokens, in order
    counts: list[int] = field(default_factory=list)  # tokens received up to and with that read
    prompt_tokens: int = 0  # as the server counts
    completion_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""
    error: str = ""

    def note(self, now: float, count: int) -> None:
        """`count` tokens have arrived at `now`. Two events of one read are one arrival."""
        if self.times and self.times[-1] == now:
            self.counts[-1] = count
        elif not self.counts or count > self.counts[-1]:
            self.times.append(now)
            self.counts.append(count)

    @property
    def latency(self) -> float:
        return self.end - self.start

    @property
    def ttft(self) -> float:
        return self.times[0] - self.start

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.times, self.times[1:])]

    @property
    def itls(self) -> list[float]:
        """One value per token after the first arrival: each arrival's gap shared equally by its tokens."""
        values: list[float] = []
        for gap, before, after in zip(self.gaps, self.counts, self.counts[1:]):
            values += [gap / (after - before)] * (after - before)
        return values

    @property
    def tpot(self) -> float | None:
        """None where no token came after the first arrival."""
        if len(self.times) < 2:
            return None
        return (self.times[-1] - self.times[0]) / (self.counts[-1] - self.counts[0])


@dataclass(frozen=True)
class Percentiles:
    """A distribution, in milliseconds."""

    mean: float
    median: float
    std: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True)
class LoadMetrics:
    backend: str
    request_rate: float
    max_concurrency: int | None
    completed: int
    failed: int
    duration_s: float
    input_tokens: int
    output_tokens: int
    retokenized_tokens: int
    cached_tokens: int
    request_throughput: float
    input_throughput: float
    output_throughput: float
    concurrency: float  # requests in flight, on average
    e2e_ms: Percentiles
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    itl_ms: Percentiles
    max_gap_ms: float  # longest silence inside any stream
    errors: dict[str, int]  # first line of the message -> requests


def measure(
    lines: Sequence[Timeline], retokenized: int, backend: str, request_rate: float, max_concurrency: int | None
) -> LoadMetrics:
    good = [line for line in lines if not line.error]
    duration = max(line.end for line in lines) - min(line.start for line in lines)
    inputs, outputs = sum(g.prompt_tokens for g in good), sum(g.completion_tokens for g in good)
    started = [g for g in good if g.times]
    return LoadMetrics(
        backend=backend,
        request_rate=request_rate,
        max_concurrency=max_concurrency,
        completed=len(good),
        failed=len(lines) - len(good),
        duration_s=duration,
        input_tokens=inputs,
        output_tokens=outputs,
        retokenized_tokens=retokenized,
        cached_tokens=sum(g.cached_tokens for g in good),
        request_throughput=len(good) / duration,
        input_throughput=inputs / duration,
        output_throughput=outputs / duration,
        concurrency=sum(g.latency for g in good) / duration,
        e2e_ms=spread([g.latency for g in good]),
        ttft_ms=spread([g.ttft for g in started]),
        tpot_ms=spread([tpot for g in started if (tpot := g.tpot) is not None]),
        itl_ms=spread([itl for g in started for itl in g.itls]),
        max_gap_ms=max((gap for g in started for gap in g.gaps), default=0.0) * 1000,
        errors=dict(Counter(line.error for line in lines if line.error).most_common(5)),
    )


def spread(seconds: list[float]) -> Percentiles:
    """Zeros where there is nothing to describe, as the table has always shown it."""
    if not seconds:
        return Percentiles(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    ms = sorted(s * 1000 for s in seconds)
    return Percentiles(
        mean=statistics.fmean(ms),
        median=percentile(ms, 50),
        std=statistics.pstdev(ms),
        p90=percentile(ms, 90),
        p95=percentile(ms, 95),
        p99=percentile(ms, 99),
        max=ms[-1],
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Linear interpolation between the two nearest of ascending values."""
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
