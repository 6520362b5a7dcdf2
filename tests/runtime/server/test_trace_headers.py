"""Every response says which trace its request belongs to, with and without a receiver of traces."""

import re
from typing import Any

import pytest

from tests.fakes.server import Served, served

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-(0[0-3])")


async def answered(server: Served, path: str, headers: dict[str, str], **body: Any) -> tuple[str, str, str, str]:
    """(trace id, span id, flags, tracestate) of the response."""
    async with server.http.post(path, json=body, headers=headers) as response:
        await response.read()
        found = HEADER.fullmatch(response.headers["traceparent"])
        return *found.groups(), response.headers.get("tracestate", "")


@pytest.mark.parametrize("path", ["/generate", "/health", "/nowhere", "/v1/chat/completions"])
def test_a_trace_is_gone_on_with_by_a_span_of_this_server(path: str) -> None:
    async def check(server: Served) -> None:
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "a=1,b=2"}
        trace, span, flags, state = await answered(server, path, headers, text="a")
        assert (trace, flags, state) == (TRACE, "01", "a=1,b=2") and span != CALLER

    served(check)


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense", "tracestate": "a=1"}, {"tracestate": "a=1"}])
def test_a_request_without_a_trace_gets_one_that_is_not_sampled(headers: dict[str, str]) -> None:
    async def check(server: Served) -> None:
        first = await answered(server, "/generate", headers, text="a")
        second = await answered(server, "/generate", headers, text="a")
        assert first[0] != second[0] and first[1] != second[1]
        assert first[2:] == ("00", "")

    served(check)


def test_a_stream_has_the_header_as_well() -> None:
    async def check(server: Served) -> None:
        body = {"text": "a", "stream": True}
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-00"}
        assert (await answered(server, "/generate", headers, **body))[0] == TRACE

    served(check)


def test_the_log_line_of_a_request_has_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Served) -> None:
        for trace in (TRACE, TRACE[::-1]):
            headers = {"traceparent": f"00-{trace}-{CALLER}-00"}
            await answered(server, "/generate", headers, text="a", sampling_params={"max_new_tokens": 2})

    with caplog.at_level("INFO", logger="ramet"):
        served(check, log_requests=True)
    lines = [record.getMessage() for record in caplog.records if "new tokens" in record.getMessage()]
    assert [line.split(", trace ")[1] for line in lines] == [TRACE, TRACE[::-1]]
