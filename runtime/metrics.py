"""Every number a server publishes: its name, meaning and unit, once. `ramet:` is the prefix of each.

Decides names, help texts and buckets, and how they are rendered for Prometheus; the scheduler's counters come from
ramet/ipc/stats.py. Knows no HTTP.
One process owns one `Metrics`. Adding to a number is a plain attribute update, so that a token costs nothing; the
Prometheus library is only called for a request of /metrics.
"""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ramet.ipc.stats import Metric as SchedulerMetric
from ramet.ipc.stats import MetricKind, Stats, metrics_of_stats

PREFIX = "ramet:"
LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TOKEN_GAP_BUCKETS_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 5.0)


class Counter:
    """Only grows. `labels` names what its values are split by."""

    def __init__(self, name: str, about: str, labels: tuple[str, ...] = ()) -> None:
        self.name, self.about, self.labels = name, about, labels
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, amount: float, *labels: str) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + amount

    def set(self, total: float) -> None:
        """For a total that another process counts."""
        self.values[()] = total

    def family(self) -> Metric:
        family = CounterMetricFamily(PREFIX + self.name, self.about, labels=self.labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


class Gauge:
    """A level that goes up and down."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about, self.value = name, about, 0.0

    def set(self, value: float) -> None:
        self.value = value

    def family(self) -> Metric:
        return GaugeMetricFamily(PREFIX + self.name, self.about, value=self.value)


def _of_scheduler(metric: SchedulerMetric) -> Counter | Gauge:
    kind = Counter if metric.kind is MetricKind.COUNTER else Gauge
    return kind(metric.name, metric.about)


class Histogram:
    """How many observations fell below each bound. `weight` counts one observation several times."""

    def __init__(self, name: str, about: str, bounds: tuple[float, ...]) -> None:
        self.name, self.about, self.bounds = name, about, bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight

    def family(self) -> Metric:
        return HistogramMetricFamily(PREFIX + self.name, self.about, buckets=list(self._rows()), sum_value=self.sum)

    def _rows(self) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts):
            total += count
            yield bound, total


class Metrics(Collector):
    """The table."""

    def __init__(self) -> None:
        self.requests = Counter("http_requests", "HTTP requests answered", ("endpoint", "status"))
        self.sequences = Counter("num_requests", "generated sequences that ended, however they ended")
        self.aborted = Counter("num_aborted_requests", "sequences that were aborted, refused or given up by the client")
        self.prompt_tokens = Counter("prompt_tokens", "prompt tokens of the sequences that started")
        self.cached_tokens = Counter("cached_tokens", "prompt tokens that were found in the prefix cache")
        self.generated_tokens = Counter("generation_tokens", "tokens generated")
        self.scheduler = {metric.field: _of_scheduler(metric) for metric in metrics_of_stats()}
        self.first_token_s = Histogram(
            "time_to_first_token_seconds", "from the arrival of a request to its first token", LATENCY_BUCKETS_S
        )
        self.token_gap_s = Histogram(
            "inter_token_latency_seconds", "between two tokens of one sequence", TOKEN_GAP_BUCKETS_S
        )
        self.latency_s = Histogram(
            "e2e_request_latency_seconds",
            "from the arrival of a request to its last token, aborts left out",
            LATENCY_BUCKETS_S,
        )

    def take(self, stats: Stats) -> None:
        """The scheduler's own levels and totals."""
        for field, metric in self.scheduler.items():
            metric.set(getattr(stats, field))

    def rows(self) -> Iterator[Counter | Gauge | Histogram]:
        """Every number, in the order of the table."""
        for row in vars(self).values():
            yield from row.values() if isinstance(row, dict) else (row,)

    def collect(self) -> Iterator[Metric]:
        return (row.family() for row in self.rows())

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)
