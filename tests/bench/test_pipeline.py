"""The client of bench/pipeline.py: it counts events without parsing, so the count must be right whatever the reads."""

import argparse
import asyncio
import json

import pytest
from fake_server import FakeServer, completion_events, serving
from hypothesis import given
from hypothesis import strategies as st

from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.pipeline import PipelineStream, Round, first_model, median_round, one_round, request_bytes

OPTIONS = argparse.Namespace(streams=4, input_len=3, output_len=5, model="tiny", chat=False, tools=False)


def reply(tokens: int, told: int, framing: bool) -> bytes:
    """An answer of `tokens` events whose usage says `told`; chunked as a server sends it if `framing`."""
    events = [b'data: {"choices":[{"text":"a"}]}\n\n'] * tokens
    events += [b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\n' % told, b"data: [DONE]\n\n"]
    framed = [b"%x\r\n%s\r\n" % (len(e), e) for e in events] if framing else events
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(framed)


def fed(data: bytes, size: int) -> PipelineStream:
    stream = PipelineStream(b"", asyncio.Future(loop=asyncio.new_event_loop()))
    for at in range(0, len(data), size):
        stream.data_received(data[at : at + size])
    return stream


@given(st.integers(0, 40), st.integers(1, 90), st.booleans())
def test_events_are_counted_whatever_the_reads(tokens: int, size: int, framing: bool) -> None:
    assert fed(reply(tokens, tokens, framing), size).tokens == tokens


def test_a_stream_with_fewer_events_than_tokens_fails() -> None:
    with pytest.raises(BadOption, match="3 events for 4 tokens: not one event per token"):
        _ = fed(reply(3, 4, True), 50).tokens


def test_a_broken_stream_fails() -> None:
    with pytest.raises(BadOption, match="a stream failed"):
        _ = fed(reply(3, 3, True)[:-30], 50).tokens


def test_no_two_requests_begin_alike() -> None:
    bodies = [json.loads(request_bytes("h", OPTIONS, i).split(b"\r\n\r\n")[1]) for i in range(128)]
    assert len({body["prompt"][0] for body in bodies}) == 128
    assert {len(body["prompt"]) for body in bodies} == {3}


def test_a_round_against_a_server_counts_every_stream() -> None:
    server = FakeServer(lambda body, number: completion_events(body["max_tokens"])[:-2] + completion_events(5)[-1:], "")
    with serving(server) as port:
        url = f"http://127.0.0.1:{port}"
        assert first_model(url) == "tiny"
        result = run_fast(one_round(url, OPTIONS, None))
    assert (result.tokens, result.events) == (20, 20)
    assert result.tokens_per_s > 0 and set(result.cpu_us) == {"client"}


def test_the_median_round_is_a_round_that_ran() -> None:
    rounds = [Round(1.0, tokens, tokens, {}) for tokens in (30, 10, 20)]
    assert median_round(rounds).tokens == 20 and median_round(rounds[:2]).tokens == 10
