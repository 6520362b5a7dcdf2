"""Counters, gauges and histograms, and the page they make."""

from ramet.runtime.metrics import Counter, Histogram, Metrics


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
        metrics.latency_s.observe(value)
    page = metrics.render().decode()
    assert 'ramet:e2e_request_latency_seconds_bucket{le="0.005"} 2.0' in page
    assert 'ramet:e2e_request_latency_seconds_bucket{le="0.01"} 3.0' in page
    assert 'ramet:e2e_request_latency_seconds_bucket{le="+Inf"} 4.0' in page
    assert "ramet:e2e_request_latency_seconds_count 4.0" in page


def test_a_counter_without_labels_starts_at_zero_and_one_with_labels_is_empty() -> None:
    page = Metrics().render().decode()
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
    assert 'endpoint="a\\"b\\n"' in metrics.render().decode()
