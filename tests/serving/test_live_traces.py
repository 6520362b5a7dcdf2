"""Traces of real requests through all processes, as a real OTLP receiver gets them; and without one that answers."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
import requests
from live import Live
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_receiver import OtlpReceiver, attributes_of

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OTHER = "1" * 32
CHAT = {"messages": [{"role": "user", "content": "Tell me a story of a fox. " * 8}], "max_tokens": 8, "stream": True}
ORDER = ["intake", "tokenize", "queue", "prefill", "decode", "detokenize"]


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as one:
        yield one


@pytest.fixture(scope="module")
def live(receiver: OtlpReceiver) -> Iterator[Live]:
    with Live(
        device="cpu", log_level="warning", max_total_tokens=20000, chunked_prefill_size=16,
        otlp_traces_endpoint=receiver.url, enable_streaming_session=True,
    ) as one:  # fmt: skip
        yield one


@pytest.fixture(scope="module")
def spans(receiver: OtlpReceiver, live: Live) -> list[Span]:
    """Of one streamed chat."""
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    with requests.post(live.url + "/v1/chat/completions", json=CHAT, headers=headers, stream=True, timeout=60) as reply:
        assert reply.status_code == 200 and reply.headers["traceparent"].split("-")[1] == TRACE
        assert list(reply.iter_lines())[-2] == b"data: [DONE]"
    return receiver.trace(TRACE)


def root(spans: list[Span]) -> Span:
    (found,) = (span for span in spans if span.kind == Span.SPAN_KIND_SERVER)
    return found


def test_the_stages_of_a_streamed_chat_come_in_order(spans: list[Span]) -> None:
    own = root(spans)
    assert own.parent_span_id.hex() == CALLER
    stages = sorted((s for s in spans if s.parent_span_id == own.span_id), key=lambda s: s.start_time_unix_nano)
    assert [span.name for span in stages] == ORDER
    edges = [edge for span in stages for edge in (span.start_time_unix_nano, span.end_time_unix_nano)]
    assert edges == sorted(edges)


def test_children_lie_within_their_parents(spans: list[Span]) -> None:
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        if span is not root(spans):
            parent = by_id[span.parent_span_id]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano, (span.name, parent.name)


def test_each_stage_is_told_by_its_process(spans: list[Span], live: Live) -> None:
    pids = {role: child.pid for role, child in live.children().items()}
    told = {attributes_of(span)["ramet.process"]: attributes_of(span)["process.pid"] for span in spans}
    assert len(told) == 4
    for process, pid in told.items():
        assert pid in {of for role, of in pids.items() if role.startswith(process)}, (told, pids)


def test_chunks_hold_the_whole_prompt(spans: list[Span]) -> None:
    (prefill,) = (span for span in spans if span.name == "prefill")
    chunks = [span for span in spans if span.name == "prefill chunk"]
    used = attributes_of(root(spans))
    assert len(chunks) > 1 and all(chunk.parent_span_id == prefill.span_id for chunk in chunks)
    computed = sum(attributes_of(chunk)["ramet.tokens"] for chunk in chunks)
    assert computed == used["gen_ai.usage.input_tokens"] - used["gen_ai.usage.cache_read.input_tokens"]
    assert 0 < used["gen_ai.response.time_to_first_chunk"] < 60


def test_no_text_is_sent(spans: list[Span]) -> None:
    assert b"story" not in b"".join(span.SerializeToString() for span in spans)


def test_what_a_streaming_session_holds_is_no_part_of_its_turns(receiver: OtlpReceiver, live: Live) -> None:
    requests.post(live.url + "/open_session", json={"session_id": "s", "streaming": True}, timeout=10)
    body = {"text": "Once", "sampling_params": {"max_new_tokens": 3}, "session_params": {"id": "s"}}
    for number in range(2):
        trace = f"{number + 7:032x}"
        headers = {"traceparent": f"00-{trace}-{CALLER}-01"}
        assert requests.post(live.url + "/generate", json=body, headers=headers, timeout=60).status_code == 200
        spans = receiver.trace(trace)
        assert attributes_of(root(spans))["ramet.request.sequences"] == 1
        assert sum(span.name == "queue" for span in spans) == 1
    requests.post(live.url + "/close_session", json={"session_id": "s"}, timeout=10)
    assert requests.get(live.url + "/health", timeout=10).status_code == 200


def test_a_base_address_gets_the_path_and_the_service_its_name(receiver: OtlpReceiver, spans: list[Span]) -> None:
    assert receiver.paths == {"/v1/traces"} and receiver.services == {"ramet"}


def test_what_has_not_been_sent_is_sent_when_the_server_drains(receiver: OtlpReceiver) -> None:
    with Live(runner="scripted", log_level="warning", otlp_traces_endpoint=receiver.url) as one:
        headers = {"traceparent": f"00-{OTHER}-{CALLER}-01"}
        body = {"text": "a", "sampling_params": {"max_new_tokens": 2}}
        assert requests.post(one.url + "/generate", json=body, headers=headers, timeout=60).status_code == 200
        assert one.stop() == 0
    assert len(receiver.trace(OTHER)) >= 7


def test_a_receiver_that_never_answers_delays_and_fails_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Live(runner="scripted", log_level="warning", otlp_traces_endpoint=url) as one:
            for _ in range(20):
                body = {"text": "a", "sampling_params": {"max_new_tokens": 2}}
                assert requests.post(one.url + "/generate", json=body, timeout=60).status_code == 200
            assert one.stop() == 0


@pytest.mark.parametrize("given", ["localhost:4317", "ftp://localhost/v1/traces"])
def test_an_endpoint_that_is_no_address_is_refused_at_the_start(given: str) -> None:
    command = [sys.executable, "-m", "ramet", "serve", "--port", "0", "--otlp-traces-endpoint", given]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and "--otlp-traces-endpoint" in ended.stderr and given in ended.stderr


def test_json_of_the_reply_is_the_same_with_and_without_a_trace(live: Live) -> None:
    body = {"text": "The fox", "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
    with_trace, without = (
        json.loads(requests.post(live.url + "/generate", json=body, headers=headers, timeout=60).content)["output_ids"]
        for headers in ({"traceparent": f"00-{TRACE[::-1]}-{CALLER}-01"}, {"traceparent": f"00-{TRACE}-{CALLER}-00"})
    )
    assert with_trace == without
