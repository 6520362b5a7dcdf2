"""Spans of requests of every surface, as the SDK exports them: what is in them, and what is not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ramet.ipc.messages import Abort, Generate
from ramet.runtime.engine_client.recording import MAX_SEQUENCES
from ramet.runtime.server.tracing.otlp import OtlpTraces
from ramet.runtime.server.tracing.spans import OPERATIONS
from ramet.runtime.server.tracing.spans import ServedFacts as Names
from tests.fakes.engine import CACHED
from tests.fakes.server import Served, served

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}
SECRET = "pineapple"
STAGES = ["intake", "tokenize", "queue", "prefill", "prefill chunk", "decode", "detokenize"]


def traced(test: Callable[[Served], Awaitable[None]], ratio: float | None = None, **options: Any) -> list[ReadableSpan]:
    """What is exported of a test's requests, until the server has ended."""
    exporter = InMemorySpanExporter()
    traces = OtlpTraces(exporter, Names("the model", "127.0.0.1", 30000), ratio)
    served(test, traces=traces, **options)
    traces.close()
    return list(exporter.get_finished_spans())


def one(path: str, body: dict[str, Any], headers: dict[str, str] = HEADERS) -> list[ReadableSpan]:
    async def check(server: Served) -> None:
        async with server.http.post(path, json=body, headers=headers) as response:
            await response.read()

    return traced(check)


def generate(**body: Any) -> list[ReadableSpan]:
    return one("/generate", {"text": SECRET, "sampling_params": {"max_new_tokens": 3, "temperature": 0.5}, **body})


def named(spans: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def root(spans: list[ReadableSpan]) -> ReadableSpan:
    (found,) = (span for span in spans if span.kind is SpanKind.SERVER)
    return found


def test_stages_come_in_order_within_their_parents() -> None:
    spans = generate()
    assert [span.name for span in spans] == ["text_completion the model", *STAGES]
    by_id = {span.context.span_id: span for span in spans}
    for span in spans:
        assert span.start_time <= span.end_time
        if span.kind is not SpanKind.SERVER:
            parent = by_id[span.parent.span_id]
            assert parent.start_time <= span.start_time and span.end_time <= parent.end_time
    starts = [span.start_time for span in spans[1:]]
    assert starts == sorted(starts)


def test_all_spans_have_the_trace_of_the_caller() -> None:
    spans = generate()
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE}
    assert f"{root(spans).parent.span_id:016x}" == CALLER and root(spans).parent.is_remote
    assert {span.context.trace_state.to_header() for span in spans} == {"vendor=1"}
    assert len({span.context.span_id for span in spans}) == len(spans)


def test_the_response_names_the_span_of_the_request() -> None:
    headers = {}

    async def check(server: Served) -> None:
        async with server.http.post("/generate", json={"text": "a"}) as response:
            headers.update(response.headers)

    own = root(traced(check)).context
    assert headers["traceparent"] == f"00-{own.trace_id:032x}-{own.span_id:016x}-01"


def test_the_request_s_span_says_what_was_asked_and_used() -> None:
    found = dict(root(generate(rid="job")).attributes)
    assert found.pop("gen_ai.response.time_to_first_chunk") > 0
    assert found.pop("process.pid") > 0
    assert found == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "ramet",
        "gen_ai.request.model": "the model",
        "gen_ai.response.model": "the model",
        "gen_ai.response.id": "job",
        "gen_ai.request.stream": False,
        "gen_ai.request.max_tokens": 3,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.top_k": -1,
        "gen_ai.request.frequency_penalty": 0.0,
        "gen_ai.request.presence_penalty": 0.0,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": len(SECRET),
        "gen_ai.usage.cache_read.input_tokens": CACHED,
        "gen_ai.usage.output_tokens": 3,
        "http.request.method": "POST",
        "http.route": "/generate",
        "http.response.status_code": 200,
        "ramet.process": "server",
        "ramet.request.prompts": 1,
        "ramet.request.sequences": 1,
        "server.address": "127.0.0.1",
        "server.port": 30000,
    }


CHAT = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 3}
BODIES = {
    "/generate": {"text": SECRET},
    "/v1/completions": {"prompt": SECRET, "max_tokens": 3, "stop": [SECRET]},
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"input": SECRET, "max_output_tokens": 3},
    "/v1/messages": CHAT,
    "/v1/embeddings": {"input": SECRET},
    "/language/generate": {"prompt": [SECRET], "sampling_params": {"max_new_tokens": 3}},
    "/language/select": {"prompt": [SECRET], "choices": ["a", SECRET]},
}


@pytest.mark.parametrize("path", BODIES)
def test_every_surface_is_traced_and_tells_no_text(path: str) -> None:
    spans = one(path, BODIES[path])
    own = root(spans)
    assert own.attributes["gen_ai.operation.name"] == OPERATIONS[path]
    assert own.attributes["http.response.status_code"] == 200 and own.status.status_code is StatusCode.UNSET
    assert named(spans, "queue") and own.attributes["gen_ai.usage.input_tokens"] > 0
    assert SECRET not in "".join(span.to_json() for span in spans)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_rendering_a_chat_is_part_of_the_intake(path: str) -> None:
    spans = one(path, BODIES[path])
    (intake,), (render,) = named(spans, "intake"), named(spans, "render")
    assert render.parent.span_id == intake.context.span_id
    assert intake.start_time <= render.start_time and render.end_time <= intake.end_time


def test_samples_of_a_prompt_have_stages_each_and_are_tokenised_once() -> None:
    spans = generate(sampling_params={"n": 3, "max_new_tokens": 2})
    assert [len(named(spans, name)) for name in ("tokenize", "queue", "decode")] == [1, 3, 3]
    assert [span.attributes["ramet.sequence"] for span in named(spans, "queue")] == [0, 1, 2]
    own = root(spans).attributes
    assert own["gen_ai.request.choice.count"] == 3 and own["gen_ai.usage.input_tokens"] == len(SECRET)
    assert own["gen_ai.usage.output_tokens"] == 6


def test_a_bounded_number_of_sequences_has_stages() -> None:
    spans = one("/generate", {"text": ["a"] * (MAX_SEQUENCES + 3), "sampling_params": {"max_new_tokens": 1}})
    own = root(spans).attributes
    assert own["ramet.request.sequences"] == own["gen_ai.usage.input_tokens"] == MAX_SEQUENCES + 3
    assert len(named(spans, "queue")) == len(own["gen_ai.response.finish_reasons"]) == MAX_SEQUENCES


def test_a_refused_body_is_a_span_with_the_status() -> None:
    (own, intake) = one("/generate", {"text": 5})
    assert own.attributes["error.type"] == "400" and own.status.status_code is StatusCode.UNSET
    assert intake.name == "intake"


def test_a_prompt_that_the_tokenizer_refuses_has_no_stages() -> None:
    spans = one("/generate", {"text": "REJECT"})
    assert [span.name for span in spans] == ["text_completion the model", "intake"]
    own = root(spans).attributes
    assert own["error.type"] == "400" and list(own["gen_ai.response.finish_reasons"]) == ["refused"]


def test_a_stream_that_fails_after_its_first_event_is_an_error() -> None:
    async def check(server: Served) -> None:
        post = server.http.post("/generate", json={"text": "a", "stream": True}, headers=HEADERS)
        reading = asyncio.create_task(post.__aenter__())
        await server.engine.saw(Generate)
        server.engine.step()
        response = await reading
        (uid,) = server.engine.running
        server.engine.fail(uid, 500)
        assert b"error" in await response.read()

    own = root(traced(check, auto=False))
    assert own.status.status_code is StatusCode.ERROR and own.attributes["error.type"] == "500"
    assert own.attributes["http.response.status_code"] == 200
    assert list(own.attributes["gen_ai.response.finish_reasons"]) == ["abort"]


def test_a_client_that_goes_away_leaves_a_span_with_what_was_computed() -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {"text": "a"}, headers=HEADERS))
        await server.engine.saw(Generate)
        server.engine.step()
        waiting.cancel()
        (abort,) = await server.engine.saw(Abort)
        server.engine.abort(abort.uids, abort.message)

    own = root(traced(check, auto=False))
    assert own.attributes["http.response.status_code"] == 499 and own.attributes["error.type"] == "499"
    assert own.status.status_code is StatusCode.UNSET


def test_what_is_open_when_the_server_ends_is_sent() -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {"text": "a"}, headers=HEADERS))
        await server.engine.saw(Generate)
        waiting.cancel()
        await server.engine.saw(Abort)  # and nothing answers it

    assert root(traced(check, auto=False)).attributes["http.response.status_code"] == 499


@pytest.mark.parametrize(("flags", "ratio", "num"), [("00", None, 0), ("01", 0.0, 1), ("00", 1.0, 0)])
def test_the_caller_decides_whether_its_trace_is_sampled(flags: str, ratio: float | None, num: int) -> None:
    async def check(server: Served) -> None:
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-{flags}"}
        async with server.http.post("/generate", json={"text": "a"}, headers=headers) as response:
            assert response.headers["traceparent"].endswith(f"-{flags}")
        (sent,) = server.engine.of_type(Generate)
        assert sent.traced == bool(num)

    spans = traced(check, ratio)
    assert len([span for span in spans if span.kind is SpanKind.SERVER]) == num


@pytest.mark.parametrize(("sampler", "argument", "num"), [("always_off", "", 0), ("parentbased_traceidratio", "1", 4)])
def test_the_environment_s_sampler_counts_where_no_ratio_is_given(
    monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str, num: int
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)

    async def check(server: Served) -> None:
        for _ in range(4):
            await server.post("/generate", {"text": "a"})

    assert len([span for span in traced(check) if span.kind is SpanKind.SERVER]) == num


def test_a_ratio_is_one_of_the_traces_that_begin_here() -> None:
    async def check(server: Served) -> None:
        for _ in range(40):
            await server.post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 1}})

    assert 2 < len([span for span in traced(check, 0.5) if span.kind is SpanKind.SERVER]) < 38


def test_probes_and_metrics_are_not_traced() -> None:
    async def check(server: Served) -> None:
        await server.get("/health", headers=HEADERS)
        await server.get("/health_generate", headers=HEADERS)
        async with server.http.get("/metrics", headers=HEADERS):
            pass

    assert traced(check) == []


def test_the_service_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert root(generate()).resource.attributes["service.name"] == "ramet"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chats")
    assert root(generate()).resource.attributes["service.name"] == "chats"
