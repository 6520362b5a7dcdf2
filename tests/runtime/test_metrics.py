"""Counters, gauges and histograms, and the page they make."""

from ramet.ipc.stats import Stats
from ramet.ipc.times import SequenceTimes
from ramet.runtime.metrics.table import DEVICE, Counter, Histogram, Metrics, MetricsPage


def test_a_weight_counts_an_observation_several_times() -> None:
    one, many = Histogram("a", "about", (1.0, 2.0)), Histogram("a", "about", (1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 1.5, 1.5, 9.0):
        one.observe(value)
    for value, weight in ((0.5, 1), (1.0, 1), (1.5, 3), (9.0, 1)):
        many.observe(value, weight)
    assert one.counts == many.counts == [2, 3, 1]
    assert one.sum == many.sum == 15.0


def test_buckets_are_cumulative_and_the_bound_belongs_to_its_bucket() -> None:
    metrics = Metrics()
    for value in (0.001, 0.005, 0.006, 1000.0):
        metrics.timing.latency_s.observe(value)
    page = MetricsPage(metrics).render()[0].decode()
    assert 'ramet:e2e_request_latency_seconds_bucket{le="0.005"} 2.0' in page
    assert 'ramet:e2e_request_latency_seconds_bucket{le="0.01"} 3.0' in page
    assert 'ramet:e2e_request_latency_seconds_bucket{le="+Inf"} 4.0' in page
    assert "ramet:e2e_request_latency_seconds_count 4.0" in page


def test_a_counter_without_labels_starts_at_zero_and_one_with_labels_is_empty() -> None:
    page = MetricsPage(Metrics()).render()[0].decode()
    assert "ramet:prompt_tokens_total 0.0" in page
    assert "ramet:http_requests_total{" not in page


def test_labels_split_a_counter() -> None:
    counter = Counter("a", "about", ("x",))
    counter.add(1, "p")
    counter.add(2, "q")
    counter.add(3, "p")
    assert counter.values == {("p",): 4.0, ("q",): 2.0}


def test_label_values_cannot_break_the_page() -> None:
    metrics = Metrics()
    metrics.requests.add(1, 'a"b\n', "200")
    assert 'endpoint="a\\"b\\n"' in MetricsPage(metrics).render()[0].decode()


def test_a_sequence_that_never_ran_has_no_queue_time() -> None:
    metrics = Metrics()
    metrics.timing.observe(SequenceTimes(queued_s=1.0, ended_s=2.0), num_prompt=3, num_new=0)
    metrics.timing.observe(SequenceTimes(queued_s=1.0, admitted_s=3.0, ended_s=4.0), num_prompt=3, num_new=0)
    assert sum(metrics.timing.queue_s.counts) == 1 and metrics.timing.queue_s.sum == 2.0
    assert sum(metrics.timing.prefill_s.counts) == sum(metrics.timing.decode_s.counts) == 0
    assert sum(metrics.timing.prompt_lengths.counts) == 2


def test_others_bounds_do_not_show_on_our_own_page() -> None:
    histogram = Histogram("a", "about", (1.0, 2.0), ((0.5, 2.0),))
    for value in (0.3, 0.7, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.bounds == (0.5, 1.0, 2.0) and histogram.counts == [1, 1, 1, 1]
    assert list(histogram.buckets((1.0, 2.0))) == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert list(histogram.buckets((0.5, 2.0))) == [("0.5", 1), ("2.0", 3), ("+Inf", 4)]


def test_the_hit_rate_is_that_of_the_last_second_in_which_a_sequence_started() -> None:
    metrics = Metrics()
    metrics.prompt_tokens.add(10)
    metrics.take(Stats())
    metrics.prompt_tokens.add(10)
    metrics.cached_tokens.add(8, DEVICE)
    metrics.take(Stats())
    assert metrics.hit_rate.total == 0.8
    metrics.take(Stats())
    assert metrics.hit_rate.total == 0.8
