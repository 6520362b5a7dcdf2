"""A receiver that is stuck holds up nothing, and what waits for it is bounded."""

import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from ramet.runtime.engine_client.trace_context import TraceContext
from ramet.runtime.server.tracing import otlp
from ramet.runtime.server.tracing.otlp import BATCH, BETWEEN_LINES_S, MAX_QUEUE, OtlpTraces, Seldom
from ramet.runtime.server.tracing.spans import ServedFacts
from tests.fakes.manual_clock import ManualClock

NAMES = ServedFacts("the model", "127.0.0.1", 30000)
NUM = 3000  # requests, of two spans each


class Stuck(SpanExporter):
    """Takes nothing until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.num = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.released.wait()
        self.num += len(spans)
        return SpanExportResult.SUCCESS


def end_requests(traces: OtlpTraces, num: int) -> None:
    for number in range(num):
        recording = traces.begin("/generate", TraceContext(f"{number + 1:032x}", f"{number + 1:016x}"), 1.0)
        assert recording is not None
        recording.end(200, "")


def test_a_stuck_receiver_costs_a_bounded_number_of_spans() -> None:
    stuck = Stuck()
    traces = OtlpTraces(stuck, NAMES, 1.0)
    end_requests(traces, NUM)  # returns while nothing is taken
    stuck.released.set()
    traces.close()
    assert MAX_QUEUE <= stuck.num <= MAX_QUEUE + BATCH < 2 * NUM


def test_the_end_waits_for_a_stuck_receiver_no_longer_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "FLUSH_WITHIN_S", 0.05)
    stuck = Stuck()
    traces = OtlpTraces(stuck, NAMES, 1.0)
    end_requests(traces, 1)
    traces.close()
    assert stuck.num == 0
    stuck.released.set()


def test_a_trace_that_cannot_be_made_is_logged_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("no such times")

    monkeypatch.setattr(otlp, "spans_of", fail)
    traces = OtlpTraces(Stuck(), NAMES, 1.0)
    with caplog.at_level("ERROR", logger="ramet"):
        end_requests(traces, 1)
    assert "a trace of /generate is not sent" in caplog.text and "no such times" in caplog.text


def test_the_sdk_says_something_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(100.0)
    handler = Seldom(clock)
    record = logging.LogRecord("opentelemetry.x", logging.WARNING, "", 0, "no receiver", None, None)
    with caplog.at_level("WARNING", logger="ramet"):
        for seconds in (0.0, 1.0, BETWEEN_LINES_S):
            clock.advance(seconds)
            handler.emit(record)
    assert [each.getMessage() for each in caplog.records] == ["sending traces: no receiver"] * 2
