"""Which headers name a trace, and what of tracestate is passed on. Cases are those of the specification's text."""

import pytest

from ramet.runtime.engine_client.trace_context import MAX_STATE, TraceContext, read

TRACE, CALLER, OWN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "a" * 16


def test_a_valid_header_is_read() -> None:
    found = read([f"00-{TRACE}-{CALLER}-01"], ["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"], OWN)
    assert found == TraceContext(TRACE, OWN, CALLER, 1, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")


@pytest.mark.parametrize(
    "header",
    [
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"00-{TRACE[:-1]}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-1",
        f"00-{TRACE}-{CALLER}-01-more",
        f"01-{TRACE}-{CALLER}-01.more",
        f"00_{TRACE}_{CALLER}_01",
        f"00-{TRACE}-{CALLER}",
        f"00-{TRACE}-{CALLER}-01\n",
        "",
        "garbage",
    ],
)
def test_an_invalid_header_is_ignored(header: str) -> None:
    assert read([header], ["a=b"], OWN) is None


def test_two_headers_are_ignored() -> None:
    header = f"00-{TRACE}-{CALLER}-01"
    assert read([header, header], [], OWN) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert read([f"cc-{TRACE}-{CALLER}-01-what-comes"], [], OWN) == TraceContext(TRACE, OWN, CALLER, 1)


def test_only_known_flags_are_passed_on() -> None:
    assert read([f"00-{TRACE}-{CALLER}-ff"], [], OWN).flags == 3


@pytest.mark.parametrize(
    ("states", "passed_on"),
    [
        (["a=1", "b=2"], "a=1,b=2"),
        (["a=1 , \tb=2 "], "a=1,b=2"),
        (["a=1,,b=2"], "a=1,b=2"),
        (["tenant0@sys=v"], "tenant0@sys=v"),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a=1,b"], ""),
        (["a=b=c"], ""),
        (["a=\u00e9"], ""),
        (["a=1" + "".join(f",k{i}=v" for i in range(32))], ""),
        ([f"{'k' * 257}=v"], ""),
        ([f"k={'v' * 257}"], ""),
    ],
)
def test_a_state_is_passed_on_or_dropped_whole(states: list[str], passed_on: str) -> None:
    assert read([f"00-{TRACE}-{CALLER}-00"], states, OWN).state == passed_on


def test_a_long_state_loses_its_last_members() -> None:
    members = [f"k{i}={'v' * 100}" for i in range(10)]
    state = read([f"00-{TRACE}-{CALLER}-00"], [",".join(members)], OWN).state
    assert state == ",".join(members[:4]) and len(state) <= MAX_STATE
