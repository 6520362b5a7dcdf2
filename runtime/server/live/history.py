"""The last hour for charts: a row of numbers a second, in a ring of fixed size.

Decides what is kept and over what time a rate is taken. Knows the counters, no HTTP. Each number has eight bytes:
SAMPLES rows of COLUMNS are 720,000 bytes, from the start on and for ever.
"""

import math
import time
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ramet.ipc.stats import Stats
from ramet.runtime.metrics.table import Histogram, Metrics
from ramet.runtime.replies.long_list import Listed, listed

SAMPLES = 3600
INTERVAL_S = 1.0
OVER_S = 5  # a rate is taken over so many seconds: the scheduler's counters come once a second, not at our second
QUANTILES = (0.5, 0.9, 0.99)
PHASES = ("plan", "forward", "sample", "results")
COLUMNS = (
    "time_s", "lookups", "running", "waiting", "used_tokens", "evictable_tokens", "total_tokens",
    "generated_per_s", "prompt_per_s", "cached_per_s", "computed_per_s", "evicted_per_s", "retracted_per_s",
    "steps_per_s", "batch_tokens", "plan_ms", "forward_ms", "sample_ms", "results_ms",
    "first_token_p50_s", "first_token_p90_s", "first_token_p99_s", "gap_p50_s", "gap_p90_s", "gap_p99_s",
)  # fmt: skip


class _Totals(NamedTuple):
    at_s: float
    rated: tuple[float, ...]  # of which rates per second are taken, in the order of the columns
    steps: int
    phases: tuple[float, ...]
    first_token: list[int]
    gap: list[int]


class History:
    """`sample` once a second. `stats`: the scheduler's newest counters."""

    def __init__(self, metrics: Metrics, stats: Callable[[], Stats], now_s: Callable[[], float] = time.time) -> None:
        self._metrics, self._stats, self._now_s = metrics, stats, now_s
        self._rows = array("d", bytes(8 * SAMPLES * len(COLUMNS)))
        self._num = 0  # samples that were ever taken
        self._past: deque[_Totals] = deque(maxlen=OVER_S + 1)
        self.newest: dict[str, float] = {}

    def sample(self) -> None:
        stats, totals = self._stats(), self._totals()
        self._past.append(totals)
        row = [
            round(totals.at_s, 1), stats.lookups, stats.running_requests, stats.waiting_requests, stats.used_tokens,
            stats.evictable_tokens, stats.total_tokens, *map(_short, self._rates(self._past[0], totals)),
        ]  # fmt: skip
        at = self._num % SAMPLES * len(COLUMNS)
        self._rows[at : at + len(row)] = array("d", row)
        self._num += 1
        self.newest = dict(zip(COLUMNS, row, strict=True))

    def columns(self) -> dict[str, Listed]:
        """Every column, the oldest sample first. A number that is not known is NaN."""
        first, num = max(0, self._num - SAMPLES), min(self._num, SAMPLES)
        return {name: listed(partial(self._entries, i, first), 0, num) for i, name in enumerate(COLUMNS)}

    def _entries(self, column: int, first: int, start: int, stop: int) -> list[float]:
        return [self._rows[(first + i) % SAMPLES * len(COLUMNS) + column] for i in range(start, stop)]

    def _totals(self) -> _Totals:
        stats, metrics = self._stats(), self._metrics
        rated = (
            metrics.generated_tokens.total, metrics.prompt_tokens.total, metrics.cached_tokens.total,
            stats.prefill_tokens, stats.evicted_tokens, stats.retractions, stats.steps,
        )  # fmt: skip
        phases = tuple(stats.phase_seconds.get(name, 0.0) for name in PHASES)
        counts = [list(each.counts) for each in (metrics.timing.first_token_s, metrics.timing.token_gap_s)]
        return _Totals(self._now_s(), rated, stats.steps, phases, *counts)

    def _rates(self, old: _Totals, new: _Totals) -> list[float]:
        """The columns from `generated_per_s` on."""
        seconds, steps = new.at_s - old.at_s, new.steps - old.steps
        rates = [(b - a) / seconds if seconds > 0 else 0.0 for a, b in zip(old.rated, new.rated, strict=True)]
        tokens = new.rated[0] - old.rated[0] + new.rated[3] - old.rated[3]
        batch = tokens / steps if steps else 0.0
        phases = [(b - a) / steps * 1e3 if steps else math.nan for a, b in zip(old.phases, new.phases, strict=True)]
        first = _quantiles(self._metrics.timing.first_token_s, old.first_token, new.first_token)
        gap = _quantiles(self._metrics.timing.token_gap_s, old.gap, new.gap)
        return [*rates, batch, *phases, *first, *gap]


def _quantiles(histogram: Histogram, old: list[int], new: list[int]) -> list[float]:
    counts = [b - a for a, b in zip(old, new, strict=True)]
    return [quantile(counts, histogram.bounds, share) for share in QUANTILES]


def quantile(counts: list[int], bounds: tuple[float, ...], share: float) -> float:
    """As Prometheus takes it: linear within a bucket, the last bound beyond it; NaN of nothing."""
    total = sum(counts)
    if not total:
        return math.nan
    left = share * total
    for i, bound in enumerate(bounds):
        if counts[i] and left <= counts[i]:
            low = bounds[i - 1] if i else 0.0
            return low + (bound - low) * left / counts[i]
        left -= counts[i]
    return bounds[-1]


def _short(value: float) -> float:
    """Four digits are enough for a curve, and short to send."""
    return float(f"{value:.4g}")
