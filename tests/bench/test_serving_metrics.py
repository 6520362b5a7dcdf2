"""The definitions at the top of bench/serving.py, on timelines drawn by hand, and the table that shows them."""

import pytest

from ramet.bench.metrics import LoadMetrics, Percentiles, Timeline, measure, percentile, spread
from ramet.bench.report import metrics_record, table


def line(start: float, arrivals: list[tuple[float, int]], end: float, **more: object) -> Timeline:
    """`arrivals`: (time, tokens so far)."""
    made = Timeline(start=start, end=end, completion_tokens=arrivals[-1][1] if arrivals else 0)
    for now, count in arrivals:
        made.note(now, count)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def run_of(*lines: Timeline) -> LoadMetrics:
    return measure(lines, retokenized=0, backend="ramet", request_rate=float("inf"), max_concurrency=None)


# start 10.0        first token 10.5      two at once 10.7        last 10.8    [DONE] 10.9
DRAWN = line(10.0, [(10.5, 1), (10.7, 3), (10.8, 4)], 10.9)


def test_ttft_is_from_sending_to_the_first_token() -> None:
    assert DRAWN.ttft == pytest.approx(0.5)


def test_tokens_of_one_arrival_share_the_gap_before_it() -> None:
    assert DRAWN.itls == pytest.approx([0.1, 0.1, 0.1])
    assert DRAWN.gaps == pytest.approx([0.2, 0.1])


def test_tpot_divides_by_the_tokens_after_the_first_arrival() -> None:
    assert DRAWN.tpot == pytest.approx(0.3 / 3)
    assert line(0, [(1, 4), (2, 6)], 3).tpot == pytest.approx(0.5)


def test_one_arrival_has_no_tpot_and_no_itl() -> None:
    assert line(0, [(1, 7)], 2).tpot is None and line(0, [(1, 7)], 2).itls == []


def test_events_of_one_read_are_one_arrival() -> None:
    assert line(0, [(1, 1), (1, 2), (1, 3), (2, 4)], 3).itls == [1.0]


def test_an_event_without_new_tokens_is_no_arrival() -> None:
    assert line(0, [(1, 1), (2, 1), (3, 2)], 3).gaps == [2.0]


def test_latency_ends_with_the_response_not_with_the_last_token() -> None:
    assert DRAWN.latency == pytest.approx(0.9)


def test_duration_is_from_the_first_request_to_the_end_of_the_last_response() -> None:
    assert run_of(line(5, [(6, 1)], 7), line(6, [(8, 1)], 15)).duration_s == 10


def test_rates_count_only_what_succeeded_over_the_whole_duration() -> None:
    good = line(0, [(1, 1), (2, 10)], 2, prompt_tokens=100, cached_tokens=64)
    bad = line(0, [(1, 5)], 4, error="HTTP 503: full", prompt_tokens=100)
    m = run_of(good, bad)
    assert (m.completed, m.failed, m.errors) == (1, 1, {"HTTP 503: full": 1})
    assert (m.input_tokens, m.output_tokens, m.cached_tokens) == (100, 10, 64)
    assert (m.request_throughput, m.input_throughput, m.output_throughput) == (0.25, 25.0, 2.5)
    assert m.concurrency == 0.5
    assert m.ttft_ms.max == 1000


def test_max_itl_is_the_longest_silence_inside_a_stream() -> None:
    assert run_of(line(0, [(9, 1), (10, 2), (13, 5)], 20)).max_gap_ms == 3000


def test_percentiles_interpolate() -> None:
    assert [percentile([0, 10, 20, 30], p) for p in (0, 50, 90, 100)] == pytest.approx([0, 15, 27, 30])
    assert percentile([7], 99) == 7


def test_a_run_in_which_everything_failed_has_a_table() -> None:
    m = run_of(line(0, [], 1, error="x"))
    assert m.e2e_ms == spread([]) and "Failed requests:" in table(m)


REFERENCE = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Successful requests:                     3000
Benchmark duration (s):                  66.11
Total input tokens:                      378633
Total generated tokens:                  775651
Total generated tokens (retokenized):    775118
Request throughput (req/s):              45.38
Input token throughput (tok/s):          5727.04
Output token throughput (tok/s):         11732.16
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   40881.94
Median E2E Latency (ms):                 43967.10
---------------Time to First Token----------------
Mean TTFT (ms):                          19884.75
Median TTFT (ms):                        14226.56
P99 TTFT (ms):                           47738.97
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          91.96
Median TPOT (ms):                        90.11
P99 TPOT (ms):                           308.54
---------------Inter-token Latency----------------
Mean ITL (ms):                           174.54
Median ITL (ms):                         58.56
P99 ITL (ms):                            440.18
==================================================
"""


def shown(mean: float, median: float, p99: float = 0.0) -> Percentiles:
    return Percentiles(mean=mean, median=median, std=0, p90=1, p95=2, p99=p99, max=4)


SAMPLE = LoadMetrics(
    backend="sglang", request_rate=float("inf"), max_concurrency=None, completed=3000, failed=0, duration_s=66.11,
    input_tokens=378633, output_tokens=775651, retokenized_tokens=775118, cached_tokens=7, request_throughput=45.38,
    input_throughput=5727.04, output_throughput=11732.16, concurrency=12.0, e2e_ms=shown(40881.94, 43967.10),
    ttft_ms=shown(19884.75, 14226.56, 47738.97), tpot_ms=shown(91.96, 90.11, 308.54),
    itl_ms=shown(174.54, 58.56, 440.18), max_gap_ms=5.0, errors={"HTTP 503: full": 2},
)  # fmt: skip


def test_the_table_is_the_reference_byte_for_byte() -> None:
    assert table(SAMPLE).startswith(REFERENCE)


def test_further_figures_stand_below_the_reference_block() -> None:
    below = table(SAMPLE).removeprefix(REFERENCE).splitlines()
    assert "Failed requests:                         0" in below
    assert "P90/P95/P99 TTFT (ms):                   1.00 / 2.00 / 47738.97" in below
    assert "Cached input tokens:                     7" in below
    assert "Max ITL (ms):                            5.00" in below
    assert below[-1] == "2 failed: HTTP 503: full"


def test_an_infinite_rate_is_valid_json() -> None:
    assert metrics_record(SAMPLE)["request_rate"] == "inf"
