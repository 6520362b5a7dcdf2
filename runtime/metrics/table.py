"""Every number a server publishes: its name, meaning and unit, once. `ramet:` is the prefix of each.

Decides names, help texts and buckets, and how they are rendered for Prometheus; the scheduler's counters come from
ramet/ipc/stats.py. What other servers call these numbers is in the modules beside it. Knows no HTTP.
One process owns one `Metrics`. Adding to a number is a plain attribute update, so that a token costs nothing; the
Prometheus library is only called for a request of /metrics.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ramet.ipc.stats import STEP_BOUNDS, MetricKind, Stats, WaitKind, metrics_of_stats
from ramet.ipc.stats import Metric as SchedulerMetric
from ramet.ipc.times import SequenceTimes
from ramet.runtime.metrics import buckets

PREFIX = "ramet:"
OPEN_METRICS = "application/openmetrics-text"
PLAIN_TEXT = "text/plain"
DEVICE = "device"  # where cached tokens are found: in the KV pool
REQUESTS = "requests"  # the log of requests, of lines that were dropped


def family_of(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    about: str,
    labels: tuple[str, ...],
    values: Mapping[tuple[str, ...], float],
) -> Metric:
    family = kind(name, about, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family


class Gauge:
    """A level that goes up and down. `labels` names what its values are split by."""

    kind: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily

    def __init__(self, name: str, about: str, labels: tuple[str, ...] = ()) -> None:
        self.name, self.about, self.labels = name, about, labels
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    @property
    def total(self) -> float:
        return sum(self.values.values())

    def set(self, value: float, *labels: str) -> None:
        """Of a counter: a total that is counted elsewhere."""
        self.values[labels] = value

    def family(self) -> Metric:
        return family_of(self.kind, PREFIX + self.name, self.about, self.labels, self.values)


class Counter(Gauge):
    """Only grows."""

    kind = CounterMetricFamily

    def add(self, amount: float, *labels: str) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + amount


def _of_scheduler(metric: SchedulerMetric) -> Gauge:
    kind = Counter if metric.kind is MetricKind.COUNTER else Gauge
    return kind(metric.name, metric.about)


class Histogram:
    """How many observations fell into each bucket: `counts[i]` of them up to `bounds[i]` and above the bound before,
    the last of them above all bounds. `published`: the bounds of its own page; `bounds` has those of other servers'
    names for the same number as well. `weight` counts one observation several times.
    """

    def __init__(
        self, name: str, about: str, published: tuple[float, ...], others: tuple[tuple[float, ...], ...] = ()
    ) -> None:
        self.name, self.about, self.published = name, about, published
        self.bounds = tuple(sorted({*published, *(bound for each in others for bound in each)}))
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight

    def take(self, counts: tuple[int, ...], total: float) -> None:
        """What another process counted, for `bounds`."""
        self.counts, self.sum = list(counts), total

    def family(self) -> Metric:
        rows = list(self.buckets(self.published))
        return HistogramMetricFamily(PREFIX + self.name, self.about, buckets=rows, sum_value=self.sum)

    def buckets(self, published: tuple[float, ...]) -> Iterator[tuple[str, float]]:
        """For each of these bounds, which must be among its own: how many observations are not above it."""
        total, shown = 0, set(published)
        assert shown <= set(self.bounds), f"{self.name} has no bounds {sorted(shown - set(self.bounds))}"
        for bound, count in zip(self.bounds, self.counts):
            total += count
            if bound in shown:
                yield str(bound), total
        yield "+Inf", total + self.counts[-1]


class MetricGroup:
    """Numbers about one subject."""

    def rows(self) -> Iterator[Gauge | Histogram]:
        """Every number, in the order of the table."""
        for row in vars(self).values():
            match row:
                case dict():
                    yield from row.values()
                case MetricGroup():
                    yield from row.rows()
                case Gauge() | Histogram():
                    yield row


class SessionMetrics(MetricGroup):
    def __init__(self) -> None:
        self.open = Gauge("num_sessions", "sessions that are open, streaming ones among them")
        self.tokens = Gauge("session_tokens", "tokens that sessions keep")
        self.streaming = Gauge("num_streaming_sessions", "streaming sessions that are open")
        self.streaming_tokens = Gauge(
            "streaming_session_held_tokens", "tokens of streaming sessions that the prefix cache was asked to keep"
        )


class MediaMetrics(MetricGroup):
    def __init__(self) -> None:
        self.pieces = Counter("media_pieces", "pictures, films and sounds that were prepared, by kind", ("kind",))
        self.seconds = Counter(
            "media_seconds",
            "time that workers took to decode and process media, refused ones as well, by kind",
            ("kind",),
        )
        self.waiting = Gauge("num_media_queue", "pictures, films and sounds that wait for a worker")
        self.in_use = Gauge("num_media_in_use", "files of prepared media that requests need")
        self.file_bytes = Gauge(
            "media_file_bytes", "bytes of prepared media in files: those that requests need, and some of late"
        )


class SequenceTiming(MetricGroup):
    """Times and lengths of sequences."""

    def __init__(self) -> None:
        self.first_token_s = Histogram(
            "time_to_first_token_seconds", "from the arrival of a request to its first token", *buckets.FIRST_TOKEN
        )
        self.token_gap_s = Histogram(
            "inter_token_latency_seconds", "between two tokens of one sequence", *buckets.TOKEN_GAP
        )
        self.token_time_s = Histogram(
            "time_per_output_token_seconds",
            "mean time of a sequence's tokens after its first",
            *buckets.TOKEN_GAP,
        )
        self.latency_s = Histogram(
            "e2e_request_latency_seconds",
            "from the arrival of a request to its last token, aborts left out",
            *buckets.LATENCY,
        )
        self.queue_s = Histogram(
            "queue_time_seconds", "from a sequence's arrival at the scheduler to its admission", *buckets.QUEUE
        )
        self.prefill_s = Histogram(
            "prefill_time_seconds", "from a sequence's admission to its first token", *buckets.LATENCY
        )
        self.decode_s = Histogram("decode_time_seconds", "from a sequence's first token to its end", *buckets.LATENCY)
        self.inference_s = Histogram(
            "inference_time_seconds", "from a sequence's admission to its end", *buckets.LATENCY
        )
        self.prompt_lengths = Histogram("prompt_tokens_histogram", "tokens of a sequence's prompt", *buckets.PROMPT)
        self.output_lengths = Histogram("generation_tokens_histogram", "new tokens of a sequence", *buckets.OUTPUT)
        self.longest_outputs = Histogram(
            "max_generation_tokens_histogram", "new tokens of the longest sequence of a request", *buckets.OUTPUT
        )

    def observe(self, times: SequenceTimes, num_prompt: int, num_new: int) -> None:
        """Add a sequence that ended by itself."""
        self.prompt_lengths.observe(num_prompt)
        self.output_lengths.observe(num_new)
        if not times.admitted_s:
            return
        self.queue_s.observe(times.admitted_s - times.queued_s)
        if times.prefilled_s:
            decode_s = times.ended_s - times.prefilled_s
            self.prefill_s.observe(times.prefilled_s - times.admitted_s)
            self.decode_s.observe(decode_s)
            self.inference_s.observe(times.ended_s - times.admitted_s)
            if num_new > 1:
                self.token_time_s.observe(decode_s / (num_new - 1))


class Metrics(MetricGroup, Collector):
    """The table."""

    def __init__(self) -> None:
        self.requests = Counter("http_requests", "HTTP requests answered", ("endpoint", "status"))
        self.sequences = Counter("num_requests", "generated sequences that ended, however they ended")
        self.aborted = Counter("num_aborted_requests", "sequences that were aborted, refused or given up by the client")
        self.ended = Counter(
            "finished_requests", "sequences that ended, by reason: stop, length or abort", ("finish_reason",)
        )
        self.prompt_tokens = Counter("prompt_tokens", "prompt tokens of the sequences that started")
        self.cached_tokens = Counter(
            "cached_tokens",
            "prompt tokens that were found in the prefix cache, by where it keeps them: device, the KV pool",
            ("cache_source",),
        )
        self.cached_tokens.add(0, DEVICE)
        self.generated_tokens = Counter("generation_tokens", "tokens generated")
        self.scheduler = {metric.field: _of_scheduler(metric) for metric in metrics_of_stats()}
        self.waiting = Gauge(
            "num_queue_reqs_by_reason",
            "sequences that wait for admission, by what they wait for; they sum to num_queue_reqs",
            ("reason",),
        )
        self.token_usage = Gauge("token_usage", "share of the KV pool that running sequences or clients hold")
        self.hit_rate = Gauge(
            "cache_hit_rate",
            "share of prompt tokens that were found in the prefix cache, of the sequences that started last: "
            "within the second in which any did",
        )
        self.sessions, self.media = SessionMetrics(), MediaMetrics()
        self.dropped_lines = Counter(
            "log_lines_dropped",
            "lines that were dropped because they could not be written, or not fast enough, by where to: stdout and "
            "stderr of all processes, or what --log-requests-target names (requests)",
            ("output",),
        )
        for output in ("stdout", "stderr", REQUESTS):
            self.dropped_lines.add(0, output)
        self.timing = SequenceTiming()
        self.step_tokens = Histogram("step_tokens", "tokens that a step of the scheduler computed", STEP_BOUNDS)
        self._counted = 0.0, 0.0  # prompt and cached tokens that hit_rate knows

    def take(self, stats: Stats) -> None:
        """The scheduler's own levels and totals."""
        for field, metric in self.scheduler.items():
            metric.set(getattr(stats, field))
        waiting = dict(stats.waiting_by_reason)
        for kind in WaitKind:
            self.waiting.set(waiting.get(kind.value, 0), kind.value)
        self.token_usage.set(stats.used_tokens / stats.total_tokens if stats.total_tokens else 0.0)
        if stats.step_sizes:
            self.step_tokens.take(stats.step_sizes, stats.step_tokens)
        counted, (prompts, cached) = (self.prompt_tokens.total, self.cached_tokens.total), self._counted
        if counted[0] > prompts:
            self.hit_rate.set((counted[1] - cached) / (counted[0] - prompts))
            self._counted = counted

    def collect(self) -> Iterator[Metric]:
        return (row.family() for row in self.rows())


class MetricsPage:
    """What /metrics answers: the table, and what other servers' names are wanted beside it."""

    def __init__(self, *collectors: Collector) -> None:
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics for who likes it as well as Prometheus' text format, else that."""
        wanted = _quality(accept, OPEN_METRICS)
        if wanted <= 0 or wanted < _quality(accept, PLAIN_TEXT):
            return generate_latest(self._registry), f"{PLAIN_TEXT}; version=0.0.4; charset=utf-8"
        # the library's own choice would be to replace the colons of names
        page = openmetrics.generate_latest(self._registry, escaping=openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
        return page, f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"


def _quality(accept: str, media_type: str) -> float:
    """How much the header Accept wants it, in [0, 1]; 0: not at all."""
    found = 0.0
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        if kind == media_type:
            given = next((word[2:] for word in parameters if word.startswith("q=")), "1")
            found = max(found, float(given) if re.fullmatch(r"[01](\.[0-9]{0,3})?", given) else 0.0)
    return found
