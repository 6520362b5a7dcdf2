"""Every endpoint of /openapi.json under mutated bodies, 16 at a time: never a 5xx, nothing is lost, every stream ends.

A failure names the number of its request: `python tests/fakes/fuzzed_requests.py URL NUMBER` sends it alone.
"""

import asyncio
import json
import re
import time
from collections import Counter, deque
from collections.abc import Container, Iterator
from typing import Any

import aiohttp
import msgspec
import pytest
import requests
import yarl
from fuzzed_requests import DEAD, LIVE, Fuzzer, Request
from live import Live

from ramet.runtime.intake.misspelt import UNKNOWN, UNREAD
from ramet.runtime.server.http.problems import ERRORS, shape_of
from ramet.runtime.server.routes import NAMED, ROUTES

AT_ONCE = 16
STEADY = 3  # clients beside these whose requests are valid and long, so that memory runs out
LONG = {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 120, "temperature": 0, "ignore_eos": True}}
LIMIT_S = 120.0  # of one request
LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed", "message_stop", "error")
ABOUT_NO_FIELD = (
    "The request was ended before",  # by /abort_request
    "The cache was not flushed",
    "Cannot cancel a synchronous response",
    "Profiling is not in progress",
)
# SGLang's words come first, then the field; a number beyond float64 may have a key that no field has
IN_OTHER_WORDS = re.compile(r"\(session_params\.\w+: | at character \d+ of the body, ")
# replies with `success` say in this field why it is false
TELL_OF_FAILURE = {
    "/update_weights_from_disk": "message",
    **{f"{under}/{what}_lora_adapter": "error_message" for under in ("", "/v1") for what in ("load", "unload")},
}
MAX_LEASED_S = 30.0  # leases are of 1.5 seconds at most
BUSY = ("running_requests", "waiting_requests", "leased_tokens", "owned_tokens", "penalty_slots")


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    """Small enough that requests wait for each other and are retracted.

    In float32: in bfloat16 the rounding of a token depends on its batch, and a near tie on that.
    """
    sizes = {"max_total_tokens": 350, "max_running_requests": 8, "page_size": 1, "context_length": 256}
    options = {**sizes, "dtype": "float32"}
    with Live(check_invariants=True, **options) as live:
        yield live


class Ids:
    """Of stored responses: some that live, or did, and some that were deleted."""

    def __init__(self) -> None:
        self._kept: deque[str] = deque(maxlen=40)

    def saw(self, text: str) -> None:
        self._kept += re.findall(r'"id": ?"(resp_[0-9a-f]+)"', text)[:1]

    def fill(self, text: str, index: int) -> str:
        known = self._kept[index % len(self._kept)] if self._kept else "resp_none"
        return text.replace(LIVE, known).replace(DEAD, "resp_" + "0" * 32)


async def send(http: aiohttp.ClientSession, asked: Request, ids: Ids, index: int) -> int | str:
    """The status, or why there is none. Asserts that what came is what may come."""
    url = yarl.URL(str(http._base_url).rstrip("/") + ids.fill(asked.path, index), encoded=True)
    body = None if asked.body is None else ids.fill(asked.body.decode("latin-1"), index).encode("latin-1")
    async with http.request(asked.method, url, data=body, headers=asked.headers) as answer:
        if asked.hangs_up_after is not None:
            await answer.content.read(asked.hangs_up_after)
            answer.close()
            return "hung up"
        data = await answer.read()
    path = re.sub("//+", "/", answer.url.path)
    if asked.method != "HEAD":
        judge(asked, path.rstrip("/") or "/", answer.status, answer.content_type, data)
    ids.saw(data[:300].decode("utf-8", "replace"))
    return answer.status


def judge(asked: Request, path: str, status: int, kind: str, data: bytes) -> None:
    if status >= 400:
        assert status < 500, data
        if path in TELL_OF_FAILURE and b'"success"' in data:
            assert getattr(msgspec.json.decode(data, type=ROUTES[path].reply), TELL_OF_FAILURE[path]).strip()
            return
        error = msgspec.json.decode(data, type=ERRORS[shape_of(path)]).error
        assert error.message.strip(), "a refusal without a word"
        if status == 400:
            query = yarl.URL(asked.path).query
            assert names_a_field(error.message, path, query), error.message
    elif status == 204:
        assert asked.method == "OPTIONS" and data == b"", data  # a preflight
    elif kind == "text/event-stream":
        judge_stream(path, data)
    elif kind == "application/json":
        msgspec.json.decode(data, type=ROUTES[path].reply or Any if path in ROUTES else named_reply(path, asked.method))
    else:
        assert path.startswith("/ui/") or ROUTES[path].reply is None, kind


def named_reply(path: str, method: str) -> Any:
    named = next(named for prefix, named in NAMED.items() if path.startswith(prefix))
    fitting = [each for each in named.operations if each.method == method and path.endswith(each.tail)]
    return max(fitting, key=lambda each: len(each.tail)).reply


def names_a_field(message: str, path: str, query: Container[str]) -> bool:
    """Or says that it is about no field, or which one a misspelt name seems to be, or that the body has no such, or
    that a name of the query is not read there.
    """
    body = ROUTES[path].body if path in ROUTES else None
    if body is not None and body.__struct_config__.forbid_unknown_fields and f" {UNREAD}" in message:
        return True
    misspelt = re.search(rf" {UNKNOWN} \(send (\w+)\)$", message)
    place = misspelt or re.match(r"(\w*)", message)
    assert place is not None
    if place[1] in ("body", "timeout", *(getattr(body, "__struct_fields__", ()))):
        return True
    if place[1] in query and message.startswith(f"{place[1]} {UNREAD} ("):
        return True
    return IN_OTHER_WORDS.search(message) is not None or message.startswith(ABOUT_NO_FIELD)


def judge_stream(path: str, data: bytes) -> None:
    assert data.endswith(b"\n\n"), data[-200:]
    events = [line[len(b"data: ") :] for line in data.split(b"\n") if line.startswith(b"data: ")]
    if path in ("/v1/responses", "/v1/messages"):
        assert json.loads(events[-1])["type"] in LAST_EVENTS, events[-1]
    else:
        assert events.pop() == b"[DONE]"
    for event in events:
        if b'"server_error"' in event or b'"api_error"' in event:
            raise AssertionError(event)
        if not event.startswith((b'{"error"', b'{"type":"error"')):
            msgspec.json.decode(event, type=ROUTES[path].event)


async def steady(http: aiohttp.ClientSession, expected: str, fuzzing: "asyncio.Future[None]") -> None:
    """Ask the same again and again while others are fuzzing. The answer is the expected one, or what a command that
    was among their requests left of it.
    """
    while not fuzzing.done():
        text = await long_text(http)
        assert expected.startswith(text), text


async def long_text(http: aiohttp.ClientSession) -> str:
    async with http.post("/generate", json=LONG) as answer:
        assert answer.status in (200, 400), await answer.text()
        return str((await answer.json())["text"]) if answer.status == 200 else ""


async def send_all(url: str, fuzzer: Fuzzer, indices: range) -> Counter[tuple[str, int | str]]:
    found: Counter[tuple[str, int | str]] = Counter()
    faults: list[str] = []
    waiting, ids = iter(indices), Ids()

    async def client(http: aiohttp.ClientSession) -> None:
        for index in waiting:
            asked = fuzzer.request(index)
            try:
                status = await asyncio.wait_for(send(http, asked, ids, index), LIMIT_S)
            except Exception as error:  # noqa: BLE001 - reported below, with its request
                shown = str(asked.body)[:1500]
                faults.append(
                    f"{index}: {asked.method} {asked.path[:200]} {asked.headers}\n  {shown}\n  {error!r:.900}"
                )
                status = "fault"
            found[asked.operation, status] += 1

    async def all_clients(http: aiohttp.ClientSession) -> None:
        await asyncio.gather(*(client(http) for _ in range(AT_ONCE)))

    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=AT_ONCE + STEADY)) as http:
        expected = await long_text(http)
        fuzzing = asyncio.ensure_future(all_clients(http))
        await asyncio.gather(fuzzing, *(steady(http, expected, fuzzing) for _ in range(STEADY)))
    assert not faults, f"{len(faults)} of {len(indices)} requests:\n" + "\n".join(faults[:40])
    return found


def fuzz(server: Live, indices: range) -> Counter[tuple[str, int | str]]:
    roles = {role: process.pid for role, process in server.children().items()}
    document = requests.get(server.url + "/openapi.json", timeout=10).json()
    found = asyncio.run(send_all(server.url, Fuzzer(document), indices))
    assert {role: process.pid for role, process in server.children().items()} == roles, server.output()
    assert server.generate(text="still here", sampling_params={"max_new_tokens": 2}).status_code == 200
    assert settled(server) == dict.fromkeys(BUSY, 0)
    return found


def settled(server: Live) -> dict[str, Any]:
    """What is in use, once what clients cut off has ended, and leases are over: it is asked again until then."""
    until = time.monotonic() + MAX_LEASED_S
    while True:
        state = server.state()
        used = {name: state[name] for name in BUSY}
        if not any(used.values()) or time.monotonic() > until:
            return used


def shares(found: Counter[tuple[str, int | str]]) -> Counter[int | str]:
    statuses: Counter[int | str] = Counter()
    for (_, status), count in found.items():
        statuses[status] += count
    return statuses


def test_mutated_bodies_on_every_endpoint_harm_nobody(server: Live) -> None:
    statuses = shares(fuzz(server, range(400)))
    assert statuses[200] > 80 and statuses[400] > 80, statuses


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_mutated_bodies_on_every_endpoint_harm_nobody(server: Live) -> None:
    started = time.monotonic()
    found = fuzz(server, range(1500, 11_500))
    took = time.monotonic() - started
    for operation in sorted({operation for operation, _ in found}):
        print(operation, {status: count for (o, status), count in sorted(found.items(), key=str) if o == operation})
    print(dict(shares(found)), f"{took:.0f} s, {retractions(server):.0f} retractions")
    assert shares(found).total() == 10_000 and shares(found)[200] > 2000
    assert retractions(server) > 0, "the server was never short of memory"


def retractions(server: Live) -> float:
    lines = requests.get(server.url + "/metrics", timeout=10).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("ramet:num_retracted_requests_total"))
