"""Large bodies are read in a process of their own: what comes back, and what happens when it starts or ends."""

import json
import os
import pickle
import pickletools
import re
import signal
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import psutil
import pytest

from ramet.ipc.params import SamplingParams
from ramet.runtime import exact_json
from ramet.runtime.config import make_args
from ramet.runtime.engine_client.adapters import AdapterNames
from ramet.runtime.errors import ClientError, RametError, ServerError
from ramet.runtime.intake import calls, json_pieces, media
from ramet.runtime.intake.body import made_of
from ramet.runtime.intake.body_items import ItemCount
from ramet.runtime.intake.calls import CallDefaults
from ramet.runtime.intake.chat import Style
from ramet.runtime.server.anthropic import messages
from ramet.runtime.server.http import body_worker, exchange
from ramet.runtime.server.http.body_reader import BodyReader
from ramet.runtime.server.http.request_id import RequestId
from ramet.runtime.server.http.service import ModelNames, Served
from ramet.runtime.server.native import generate
from ramet.runtime.server.openai import chat, models, responses
from ramet.runtime.server.openai.responses_chat import items_to_store
from ramet.runtime.workers.offload import FEW_ITEMS
from tests.fakes.engine import LIMITS
from tests.fakes.server import Served as Server
from tests.fakes.server import served

MAX_ITEMS = 1 << 20
PROCESS = partial(eval, "__import__('os').getpid()")  # which one reads
EXITS = partial(eval, "__import__('os')._exit(3)")
FAILS = partial(eval, "1 / 0")
NAMES = ModelNames("served", "first", AdapterNames(make_args()))
SERVED = Served(NAMES, SamplingParams(), LIMITS, Style("hermes", "qwen3", True, True), False)
USER = {"role": "user", "content": "Hello, 😀"}
BOTH = {"messages": [USER], "continue_final_message": True, "add_generation_prompt": True}  # refused, once named
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "x": 10**30}}}
PROPERTIES = {f"k{i}": {"type": "string"} for i in range(2000)}
FORCED = {"tool_choice": "required"}
LARGE = {"type": "object", "properties": PROPERTIES}
LONG = {"a": [Decimal("1.00000000000000001")], "b": 10**30, "c": 1.5}  # the first two members stay JSON
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": LONG}}
CALLS = [USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]
CHAT, MESSAGES, COUNT = (partial(each, SERVED) for each in (chat._read, messages._read, messages._read_count))
GENERATE = partial(generate._read, CallDefaults(SamplingParams(), LIMITS, processors_on=False))
RESPONSES, TOKENIZE = partial(responses._read, SERVED), partial(models._read, SERVED)
SCHEMAS = [{"json_schema": {"enum": [1.5, i]}} for i in range(5)]
BODIES = [
    (GENERATE, {"text": ["a"] * 5, "sampling_params": SCHEMAS, "stream": True}),
    (GENERATE, {"text": ["a"] * 5, "sampling_params": [*SCHEMAS[:4], {"json_schema": "{"}], "rid": "mine"}),
    (GENERATE, {"text": ["a"] * 5, "sampling_params": SCHEMAS[0]}),
    (GENERATE, {"text": "a", "image_data": "data:image/png;base64,AAAA", "require_reasoning": True}),
    (GENERATE, {"input_ids": [1, 2], "session_params": {"id": "s"}}),
    (GENERATE, {"input_embeds": [[0.5] * 8] * 3}),
    (GENERATE, {"text": ["a"] * 500, "rid": "mine"}),
    (GENERATE, {"text": ["a"] * 20_000}),
    (GENERATE, {"text": "a", "sampling_params": [{"n": 2}]}),
    (GENERATE, {"text": "a", "sampling_params": {"temperature": "hot"}}),
    (CHAT, {"messages": [USER] * 3, "tools": [TOOL], "temperature": 0.25, "rid": "mine"}),
    (CHAT, {"messages": [USER], "model": "another"}),
    (CHAT, {**BOTH, "rid": "mine"}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]}),
    (MESSAGES, {"messages": [USER], "max_tokens": 3, "system": "x", "stop_sequences": ["y"]}),
    (MESSAGES, {"messages": [USER], "max_tokens": 0}),
    (COUNT, {"messages": [USER], "model": "first"}),
    (RESPONSES, {"input": [USER, {"type": "reasoning", "summary": []}], "tools": [], "store": False}),
    (RESPONSES, {"input": [{"type": "computer_call"}]}),
    (TOKENIZE, {"prompt": ["a", "b"], "model": "served"}),
    (GENERATE, {"text": "a", "sampling_params": {"json_schema": LONG}}),
    (CHAT, {"messages": CALLS, "documents": [LONG], "chat_template_kwargs": LONG}),
    (CHAT, {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f", "parameters": LONG}}]}),
    (CHAT, {"messages": [USER], "response_format": {"type": "json_schema", "json_schema": {"schema": LONG}}}),
    (MESSAGES, {"messages": [USER], "max_tokens": 3, "tools": [{"name": "f", "input_schema": LONG}]}),
    (RESPONSES, {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": LONG}]}),
]


@pytest.fixture(scope="module")
def reader() -> Iterator[BodyReader]:
    """One whose process runs."""
    made = BodyReader()
    try:
        await_process(made)
        yield made
    finally:
        made.close()


def await_process(reader: BodyReader) -> None:
    while read(reader, PROCESS) == os.getpid():
        pass


def read(reader: BodyReader, make: Callable[[dict[str, Any]], Any], body: bytes = b"{}") -> Any:
    return reader.read(make, body, MAX_ITEMS)


def outcome(read: Callable[[], Any]) -> str:
    """All that is read, without the digits of ids and addresses that are made anew, or the error in all its words.

    What stays JSON has no digits in a repr, only in JSON.
    """
    try:
        found = read()
    except RametError as error:
        found = type(error), vars(error)
    else:
        found = *found[:2], found[2] and vars(found[2])
    return re.sub("[0-9a-f]{32}| at 0x[0-9a-f]+", "", repr(found) + msgspec.json.encode(found, enc_hook=repr).decode())


@pytest.mark.parametrize(("how", "body"), BODIES)
def test_what_the_process_reads_is_what_this_one_reads(reader: BodyReader, how: Any, body: dict[str, Any]) -> None:
    data = exact_json.dumps(body).encode()
    there = partial(exchange._read, how, RequestId("of-the-header"))
    here = partial(exchange._read, how, RequestId("of-the-header"))
    assert outcome(lambda: read(reader, there, data)) == outcome(lambda: made_of(here, data, MAX_ITEMS))


@pytest.mark.parametrize(
    ("how", "body", "num"),
    [(CHAT, {"messages": [USER]}, 1), (TOKENIZE, {"messages": [USER]}, 1), (RESPONSES, {"input": [USER]}, 0)],
)
def test_messages_without_media_are_looked_through_at_most_once(
    how: Any, body: dict[str, Any], num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands. Those of items are known to have none."""
    looks, parts_of = list[int](), media._parts_of

    def counted(messages: list[Any]) -> list[list[Any]]:
        looks.append(len(messages))
        return parts_of(messages)

    monkeypatch.setattr(media, "_parts_of", counted)
    how(RequestId(""), body)
    assert looks == [1] * num


def test_the_items_of_an_input_are_stored_alike_by_either_process(reader: BodyReader) -> None:
    parts = {"role": "user", "content": [{"type": "input_text", "text": "1"}], "n": 10**30}
    data = json.dumps({"input": [USER, {**parts, "id": "own"}, {"type": "reasoning", "summary": []}]}).encode()
    here, there = made_of(items_to_store, data, MAX_ITEMS), read(reader, items_to_store, data)
    assert [*here] == [*there] != [] and here.own_ids == there.own_ids == {"own": (1, 1)} and here.size == there.size


@pytest.mark.parametrize(("how", "body"), [
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "parameters": LARGE}}], **FORCED}),
    (MESSAGES, {"tools": [{"name": "f", "input_schema": LARGE}], "tool_choice": {"type": "any"}, "max_tokens": 3}),
])  # fmt: skip
def test_tools_come_back_as_texts_alone(how: Any, body: dict[str, Any]) -> None:
    """One is the chat's, one the constraint's: a server with streams has no time to build thousands of objects."""
    data = json.dumps({**body, "messages": [USER]}).encode()
    answer = body_worker.answer(body_worker.BodyJob(pickle.dumps(partial(how, RequestId(""))), MAX_ITEMS), data)
    assert pickle.loads(answer)[1] is None
    assert sum(1 for _ in pickletools.genops(answer)) < 1000


@pytest.mark.parametrize("data", [b"[1]", b'{"text": NaN}', b'{"text"', b'{"a":' + b"[" * 2000, b"\xff", b""])
def test_what_is_no_object_is_refused_in_the_same_words(reader: BodyReader, data: bytes) -> None:
    assert outcome(lambda: read(reader, dict, data)) == outcome(lambda: made_of(dict, data, MAX_ITEMS))


def test_what_is_read_may_nest_and_repeat(reader: BodyReader) -> None:
    nested: Any = "x"
    for level in range(52):
        nested = [nested, {"a": nested}] if level < 6 else [nested]
    value = {"nested": nested, "many": ["x"] * 100_000}
    assert read(reader, dict, json.dumps(value).encode()) == made_of(dict, json.dumps(value).encode(), MAX_ITEMS)


def test_no_body_is_cut_into_pieces_where_no_stream_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces take twice as long, and are merged again."""
    body = json.dumps({"text": ["a"] * 100_000}).encode()
    job = body_worker.BodyJob(pickle.dumps(len), MAX_ITEMS)
    monkeypatch.setattr(json_pieces, "_Pieces", None)
    assert pickle.loads(body_worker.answer(job, body)) == (1, None)


def test_a_body_has_any_size(reader: BodyReader) -> None:
    text = "é" * (5 << 20)
    assert read(reader, dict, json.dumps({"text": text}).encode()) == {"text": text}


def test_the_items_of_a_body_are_counted_in_the_process_that_parses_it(
    reader: BodyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_here(*_: Any) -> None:
        raise AssertionError("counted by the server")

    monkeypatch.setattr(ItemCount, "add", count_here)
    data = json.dumps({"many": [1] * 100_000}).encode()
    assert reader.read(len, data, MAX_ITEMS) == 1
    with pytest.raises(ClientError, match="more than 50000 entries"):
        reader.read(len, data, 50_000)


def test_this_process_reads_until_the_other_one_has_started() -> None:
    starting = BodyReader()
    try:
        assert read(starting, PROCESS) == os.getpid()
    finally:
        starting.close()


def test_the_process_that_was_started_is_the_one_that_reads() -> None:
    starting, before = BodyReader(), {child.pid for child in psutil.Process().children()}
    try:
        read(starting, PROCESS)
        while not (started := {child.pid for child in psutil.Process().children()} - before):
            pass
        await_process(starting)
        assert {read(starting, PROCESS)} == started
    finally:
        starting.close()


def test_a_process_that_was_killed_is_replaced_without_a_lost_body(reader: BodyReader) -> None:
    before = read(reader, PROCESS)
    os.kill(before, signal.SIGKILL)
    assert read(reader, PROCESS) not in (before, os.getpid())


def test_a_body_that_ends_the_process_each_time_is_not_read_here(reader: BodyReader) -> None:
    with pytest.raises(ServerError, match="in parts") as caught:
        read(reader, EXITS)
    assert caught.value.status == 503
    await_process(reader)


def test_an_error_of_ours_is_raised_here_with_its_traceback(reader: BodyReader) -> None:
    with pytest.raises(ZeroDivisionError):
        read(reader, FAILS)


@pytest.mark.parametrize(
    ("num", "params", "type_"),
    [
        (1, {"json_schema": {"enum": [1.5]}}, generate.GeneratePrompts),
        (FEW_ITEMS, [{}] * FEW_ITEMS, generate.GeneratePrompts),
        (5, [*SCHEMAS[:4], {"json_schema": "{"}], ClientError),
        (FEW_ITEMS + 1, [{}] * (FEW_ITEMS + 1), type(None)),
        (2, {"json_schema": {"enum": [1.5]}}, type(None)),  # each would come back with a schema of its own
    ],
)
def test_few_prompts_are_read_with_their_body(num: int, params: Any, type_: type) -> None:
    found = GENERATE(RequestId(""), {"text": ["a"] * num, "sampling_params": params})
    assert type(found.prompts) is type_


def test_the_server_reads_no_schema_of_a_large_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold Python's lock for 10 ms or more, for which streams wait."""
    body = {"text": ["a"] * 5, "sampling_params": [{"json_schema": {"enum": ["y" * 20_000, i]}} for i in range(5)]}
    read_here, read_generate = list[str](), calls.read_generate

    def noted(*given: Any) -> Any:
        read_here.append("one")
        return read_generate(*given)

    monkeypatch.setattr(calls, "read_generate", noted)

    async def check(server: Server) -> None:
        num = -1
        while num < len(read_here):  # until the process has started
            num = len(read_here)
            assert (await server.post("/generate", body))[0] == 200

    served(check, timeout_s=120)


def test_a_large_body_that_is_refused_has_the_id_that_it_names() -> None:
    async def check(server: Server) -> None:
        body = {**BOTH, "rid": "mine", "x": "y" * 100_000}
        for _ in range(3):  # by either process
            async with server.http.post("/v1/chat/completions", json=body) as response:
                assert (response.status, response.headers["X-Request-Id"]) == (400, "mine")

    served(check)
