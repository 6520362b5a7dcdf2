"""Which requests are traced, and their way to an OTLP receiver. The only file that imports OpenTelemetry.

The sampler decides when a request comes, so that a request which is not sampled costs nothing later. Spans are made at
its end, with the times that the processes have told: as finished spans, without a tracer, whose context and locks for
each of ten spans would cost more than all the rest. A thread of the SDK sends them in batches from a queue of bounded
length: a receiver that is down or slow holds up no request, and the oldest spans are dropped.
"""

import logging
import random
import threading
import time
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState

from ramet.runtime.config import ServeArgs
from ramet.runtime.engine_client.recording import RequestRecording
from ramet.runtime.engine_client.trace_context import SAMPLED, TraceContext
from ramet.runtime.log import LOGGER
from ramet.runtime.options.otlp_endpoint import GRPC, read_endpoint
from ramet.runtime.server.tracing.spans import OPERATIONS, ServedFacts, SpanRecord, spans_of
from ramet.version import __version__

MAX_QUEUE = 4096  # spans, of which a request has about ten
BATCH = 256  # spans that are sent together
DELAY_MS = 500.0
EXPORT_WITHIN_S = 5.0
FLUSH_WITHIN_S = 3.0
BETWEEN_LINES_S = 60.0  # between two lines of the SDK in the log


class OtlpTraces:
    """Of one server process."""

    def __init__(self, exporter: SpanExporter, served: ServedFacts, ratio: float | None = None) -> None:
        """`ratio`: of the traces that begin here; None: what OTEL_TRACES_SAMPLER says, or all."""
        provider = TracerProvider(shutdown_on_exit=False)  # reads the environment's variables
        self._sampler: Sampler = provider.sampler if ratio is None else ParentBased(TraceIdRatioBased(ratio))
        self._resource, self._scope = _resource(), InstrumentationScope("ramet", __version__)
        self._served = served
        self._open: set[RequestRecording] = set()
        self._processor = BatchSpanProcessor(exporter, MAX_QUEUE, DELAY_MS, BATCH, EXPORT_WITHIN_S * 1e3)

    def begin(self, path: str, trace: TraceContext, start_s: float) -> RequestRecording | None:
        """Of a request that has come. None: it is not traced, or not sampled."""
        if path not in OPERATIONS:
            return None
        state = _state(trace)
        caller = _caller(trace, state)
        within = Context() if caller is None else set_span_in_context(NonRecordingSpan(caller), Context())
        asked = self._sampler.should_sample(within, int(trace.trace_id, 16), OPERATIONS[path], SpanKind.SERVER)
        if asked.decision is not Decision.RECORD_AND_SAMPLE:
            return None
        recording = RequestRecording(trace._replace(flags=trace.flags | SAMPLED), path, start_s, self._done)
        self._open.add(recording)
        return recording

    def close(self) -> None:
        """Sends what is left, for FLUSH_WITHIN_S at most."""
        for recording in list(self._open):
            if recording.outcome is not None:  # the last messages of its sequences did not come
                self._done(recording)
        flushing = threading.Thread(target=self._processor.shutdown, daemon=True)
        flushing.start()
        flushing.join(FLUSH_WITHIN_S)

    def _done(self, recording: RequestRecording) -> None:
        """Called among the engine's messages, where an error would end the server and everybody's requests."""
        self._open.discard(recording)
        try:
            self._send(recording)
        except Exception:  # noqa: BLE001  a bug in what is told of a request ends no request
            LOGGER.exception("a trace of %s is not sent", recording.path)

    def _send(self, recording: RequestRecording) -> None:
        trace, state = recording.trace, _state(recording.trace)
        offset_ns = time.time_ns() - time.monotonic_ns()  # one for all spans, which stay nested
        contexts: list[SpanContext] = []
        for record in spans_of(recording, self._served):
            is_own = record.parent is None
            span_id = int(trace.span_id, 16) if is_own else random.getrandbits(64) or 1
            contexts.append(SpanContext(int(trace.trace_id, 16), span_id, False, TraceFlags(trace.flags), state))
            parent = _caller(trace, state) if record.parent is None else contexts[record.parent]
            self._processor.on_end(self._span(record, contexts[-1], parent, offset_ns))

    def _span(
        self, record: SpanRecord, context: SpanContext, parent: SpanContext | None, offset_ns: int
    ) -> ReadableSpan:
        return ReadableSpan(
            record.name,
            context,
            parent,
            self._resource,
            dict(record.attributes),
            kind=SpanKind.SERVER if record.parent is None else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, record.error) if record.error else Status(),
            start_time=round(record.start_s * 1e9) + offset_ns,
            end_time=round(record.end_s * 1e9) + offset_ns,
            instrumentation_scope=self._scope,
        )


def make_traces(serve: ServeArgs, model_name: str) -> OtlpTraces:
    """Of a server whose options name an endpoint. Raises ConfigError."""
    endpoint = read_endpoint(serve.otlp_traces_endpoint)
    _log_seldom()
    exporter = (_grpc if endpoint.protocol == GRPC else _http)(endpoint.url)
    return OtlpTraces(exporter, ServedFacts(model_name, serve.host, serve.port), serve.trace_sample_ratio)


def _http(url: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=url, timeout=EXPORT_WITHIN_S)


def _grpc(url: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter: SpanExporter = OTLPSpanExporter(endpoint=url, insecure=url.startswith("http:"), timeout=EXPORT_WITHIN_S)
    return exporter


def _resource() -> Resource:
    """With the name and attributes of the environment's variables."""
    found = Resource.create({"service.version": __version__})
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return found.merge(Resource({SERVICE_NAME: "ramet"}))
    return found


def _state(trace: TraceContext) -> TraceState:
    return TraceState.from_header([trace.state]) if trace.state else TraceState()


def _caller(trace: TraceContext, state: TraceState) -> SpanContext | None:
    if not trace.parent_id:
        return None
    return SpanContext(int(trace.trace_id, 16), int(trace.parent_id, 16), True, TraceFlags(trace.flags), state)


class Seldom(logging.Handler):
    """Says in our log what the SDK says, now and then: it repeats itself for as long as a receiver is down."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock, self._quiet_until = clock, 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if self._clock() >= self._quiet_until:
            self._quiet_until = self._clock() + BETWEEN_LINES_S
            LOGGER.warning("sending traces: %s", record.getMessage())


def _log_seldom() -> None:
    sdk = logging.getLogger("opentelemetry")
    sdk.handlers[:], sdk.propagate = [Seldom()], False
