"""/v1/responses: items in and out, events that add up to the response, what is stored and continued."""

import sys
import tracemalloc
from typing import Any

import orjson
import pytest

from ramet.ipc.messages import Generate, Render
from ramet.runtime import exact_json
from ramet.runtime.access.owner import NOBODY, Owner
from ramet.runtime.server.http.response_store import ResponseStore, Stored, StoredItems
from ramet.runtime.server.openai import responses_chat
from tests.fakes.engine import CACHED, cut_somewhere, pieces_of
from tests.fakes.server import Served, served

PATH = "/v1/responses"
INCLUDED = ["message.output_text.logprobs"]
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
OUTPUT = (
    "<think>\nIt rains.\n</think>\n\nSure.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "日本"}}\n</tool_call>'
)


async def events_of(server: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with server.http.post(PATH, data=orjson.dumps({**body, "stream": True})) as response:
        assert response.status == 200
        blocks = (await response.read()).decode().split("\n\n")[:-1]
    events = [orjson.loads(block.split("\ndata: ")[1]) for block in blocks]
    assert [f"event: {event['type']}" for event in events] == [block.split("\n")[0] for block in blocks]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def replayed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output items as a client puts them together from deltas; what the done events repeat must agree."""
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append(event["item"])
        elif kind == "content_part.added":
            items[event["output_index"]]["content"].append(event["part"])
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            part = items[event["output_index"]]["content"][event["content_index"]]
            part["text"] += event["delta"]
            if "logprobs" in part:
                part["logprobs"] += event["logprobs"]
        elif kind == "function_call_arguments.delta":
            items[event["output_index"]]["arguments"] += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert items[event["output_index"]]["content"][0]["text"] == event["text"]
        elif kind == "function_call_arguments.done":
            assert items[event["output_index"]]["arguments"] == event["arguments"]
        elif kind == "output_item.done":
            items[event["output_index"]]["status"] = event["item"]["status"]
            assert items[event["output_index"]] == event["item"]
    return items


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]


def test_an_output_becomes_items() -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(OUTPUT, 1)
        status, reply = await server.post(PATH, {"input": "Hello", "tools": [WEATHER], "metadata": {"a": "b"}})
        assert status == 200 and reply["object"] == "response" and reply["status"] == "completed"
        thought, said, first, second = reply["output"]
        assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "It rains.")
        assert (said["type"], said["content"][0]["text"]) == ("message", "Sure.")
        assert (first["type"], first["name"], first["arguments"]) == ("function_call", "weather", '{"city": "Rome"}')
        assert first["call_id"] != second["call_id"] and second["arguments"] == '{"city": "日本"}'
        tokens = len("user:Hello\n"), len(server.engine.says)
        assert (reply["usage"]["input_tokens"], reply["usage"]["output_tokens"]) == tokens
        assert reply["usage"]["input_tokens_details"] == {"cached_tokens": CACHED}
        assert 0 < reply["usage"]["output_tokens_details"]["reasoning_tokens"] < tokens[1]
        assert reply["metadata"] == {"a": "b"}

    served(check)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("text", [OUTPUT, "Only text 🙂", "", "<think>never closed", OUTPUT + "\nand after"])
def test_a_stream_adds_up_to_the_response(text: str, seed: int) -> None:
    async def check(server: Served) -> None:
        most = cut_somewhere(server.engine, text, seed)
        body = {"input": "Hello", "tools": [WEATHER], "max_output_tokens": most, "include": INCLUDED[: seed % 2]}
        _, whole = await server.post(PATH, body)
        server.client._outbox._uids = iter(range(1, 1000))  # the formulas of the fake depend on the uid
        events = await events_of(server, body)
        assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
        assert events[-1]["type"] == f"response.{whole['status']}"
        assert replayed(events) == events[-1]["response"]["output"]
        assert without_ids(events[-1]["response"]["output"]) == without_ids(whole["output"])
        assert events[-1]["response"]["usage"] == whole["usage"]

    served(check)


def test_a_message_has_the_log_probabilities_of_its_own_tokens() -> None:
    async def check(server: Served) -> None:
        server.engine.says = [
            "<think>",
            "a",
            "b",
            "</think>",
            "Yes",
            ",",
            " no",
            '<tool_call>{"name": "weather"}',
            "</tool_call>",
        ]
        body = {"input": "Hello", "tools": [WEATHER], "include": INCLUDED}
        _, reply = await server.post(PATH, body)
        said = next(item for item in reply["output"] if item["type"] == "message")["content"][0]
        assert (said["text"], len(said["logprobs"])) == ("Yes, no", 3)

    served(check)


def test_what_the_limit_cut_off_is_incomplete() -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(OUTPUT, 2)
        body = {"input": "Hello", "max_output_tokens": 3}
        _, reply = await server.post(PATH, body)
        assert reply["status"] == "incomplete" and reply["incomplete_details"] == {"reason": "max_output_tokens"}
        assert (await events_of(server, body))[-1]["type"] == "response.incomplete"

    served(check)


def test_items_become_the_template_s_messages() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        items = [
            {"role": "developer", "content": "Be kind."},
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "How is "}, {"type": "input_text", "text": "it?"}],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call", "call_id": "a1", "name": "weather", "arguments": "{}"},
            {"type": "function_call", "call_id": "a2", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a1", "output": "21"},
            {"type": "function_call_output", "call_id": "a2", "output": [{"type": "input_text", "text": "22"}]},
        ]
        body = {
            "input": items, "instructions": "Be brief.", "tools": [WEATHER], "reasoning": {"effort": "high"},
            "text": {"verbosity": "low"},
        }  # fmt: skip
        assert (await server.post(PATH, body))[0] == 200
        chat = orjson.loads(server.engine.of_type(Render)[0].chat)
        calls = [
            {"id": name, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            for name in ("a1", "a2")
        ]
        assert chat["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": "Let me see.", "reasoning_content": "t", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a1", "content": "21"},
            {"role": "tool", "tool_call_id": "a2", "content": "22"},
        ]
        assert chat["kwargs"] == {"reasoning_effort": "high", "enable_thinking": True, "verbosity": "low"}

    served(check)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_continued_where_it_ended(stream: bool) -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(OUTPUT, 4)
        body = {"input": "Hello", "instructions": "Once.", "tools": [WEATHER]}
        if stream:
            first = (await events_of(server, body))[-1]["response"]
        else:
            _, first = await server.post(PATH, body)
        server.engine.says = ["Fine."]
        follow = {"input": "And now?", "previous_response_id": first["id"]}
        _, second = await server.post(PATH, follow)
        messages = orjson.loads(server.engine.of_type(Render)[1].chat)["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "user"]
        assert messages[1]["content"] == "Sure." and len(messages[1]["tool_calls"]) == 2
        assert messages[1]["reasoning_content"] == "It rains."
        await server.post(PATH, {"input": "More.", "previous_response_id": second["id"]})
        assert len(orjson.loads(server.engine.of_type(Render)[2].chat)["messages"]) == 5

    served(check)


@pytest.mark.parametrize("said", [["Hi"], [""]])
def test_a_response_to_items_that_no_model_reads_is_continued(said: list[str]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = said
        _, first = await server.post(PATH, {"input": [{"type": "web_search_call"}], "instructions": "Once."})
        status, _ = await server.post(PATH, {"input": "More.", "previous_response_id": first["id"]})
        assert status == 200
        messages = orjson.loads(server.engine.of_type(Render)[1].chat)["messages"]
        assert [each["content"] for each in messages] == ["".join(said), "More."][-len(messages) :]

    served(check)


def test_a_stored_response_is_returned_until_it_is_deleted() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        _, reply = await server.post(PATH, {"input": "Hello"})
        path = f"{PATH}/{reply['id']}"
        assert await server.get(path) == (200, reply)
        status, items = await server.get(path + "/input_items")
        assert status == 200 and items["data"][0]["content"][0]["text"] == "Hello"
        async with server.http.delete(path) as response:
            assert await response.json() == {"id": reply["id"], "object": "response", "deleted": True}
        for gone in (path, path + "/input_items", f"{PATH}/other"):
            status, error = await server.get(gone)
            assert (status, error["error"]["code"], error["error"]["param"]) == (404, "response_not_found", None)
        status, error = await server.post(PATH, {"input": "a", "previous_response_id": reply["id"]})
        assert status == 404 and error["error"]["param"] == "previous_response_id"

    served(check)


def test_a_whole_response_is_past_cancelling() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        _, reply = await server.post(PATH, {"input": "Hello"})
        status, error = await server.post(f"{PATH}/{reply['id']}/cancel", {})
        assert status == 400 and error["error"]["message"].startswith("Cannot cancel a synchronous response.")
        assert error["error"]["type"] == "invalid_request_error" and error["error"]["param"] is None
        status, error = await server.post(f"{PATH}/resp_other/cancel", {})
        assert (status, error["error"]["code"]) == (404, "response_not_found")
        _, document = await server.get("/openapi.json")
        assert "post" in document["paths"][f"{PATH}/{{id}}/cancel"]

    served(check)


def test_listed_input_items_have_ids_and_parts_the_newest_first() -> None:
    """OpenAI's client takes a user's message without an id for one of the assistant."""

    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "weather", "arguments": "{}"}
        items = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}, call]
        items.append({"type": "function_call_output", "call_id": "c", "output": "rain", "id": None})
        _, reply = await server.post(PATH, {"input": items})
        _, page = await server.get(f"{PATH}/{reply['id']}/input_items?order=asc")
        user, assistant, called, output = page["data"]
        assert user["content"] == [{"type": "input_text", "text": "Hello"}] and user["type"] == "message"
        assert assistant["content"] == [{"type": "output_text", "text": "Yes?", "annotations": []}]
        assert called == {**call, "status": "completed"} and output["output"] == "rain"
        assert user["id"].startswith("msg_") and output["id"].startswith("fco_") and user["id"] != assistant["id"]
        assert (page["first_id"], page["last_id"], page["has_more"]) == (user["id"], output["id"], False)
        _, newest = await server.get(f"{PATH}/{reply['id']}/input_items")
        assert newest["data"] == page["data"][::-1]

    served(check)


OWN = [None, "a", "", "b", "a", None, "msg_3", None]  # ids that a client gives, one of them twice
NAMED_ITEMS = [{"role": "user", "content": f"{i}", **({"id": own} if own else {})} for i, own in enumerate(OWN)]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_page_has_what_follows_an_id_in_its_order(order: str, limit: int) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        _, reply = await server.post(PATH, {"input": NAMED_ITEMS})
        path = f"{PATH}/{reply['id']}/input_items?order={order}&limit={limit}"
        _, whole = await server.get(f"{PATH}/{reply['id']}/input_items?order={order}")
        items = whole["data"]
        made, step = reply["id"].removeprefix("resp_"), 1 if order == "asc" else -1
        assert [each["content"][0]["text"] for each in items] == [f"{i}" for i in range(8)][::step]
        assert [each["id"] for each in items][::step] == [own or f"msg_{made}_{i}" for i, own in enumerate(OWN)]
        ids = [each["id"] for each in items]
        for after in [*ids, ""]:
            start = ids.index(after) + 1 if after else 0
            page = items[start : start + limit]
            _, found = await server.get(f"{path}&after={after}")
            assert found["data"] == page and found["has_more"] == (start + limit < len(items))
            assert found["first_id"] == (page[0]["id"] if page else None)
            assert found["last_id"] == (page[-1]["id"] if page else None)

    served(check)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_page_after_an_unknown_item_is_refused(order: str) -> None:
    """A client that follows `last_id` would begin anew for ever."""

    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        _, reply = await server.post(PATH, {"input": NAMED_ITEMS})
        made = reply["id"].removeprefix("resp_")
        for number in ("8", "x", "01", "-1", "٥", "9" * 5000, ""):
            await refused(server, reply["id"], order, f"msg_{made}_{number}")
        for after in ("other", f"other_{made}_1", "msg_7", "msg_" + reply["id"] + "_1"):
            await refused(server, reply["id"], order, after)

    async def refused(server: Served, key: str, order: str, after: str) -> None:
        status, error = await server.get(f"{PATH}/{key}/input_items?order={order}&after={after}")
        assert (status, error["error"]["param"]) == (400, "after"), after
        message = error["error"]["message"]
        assert message.startswith(f"after is '{after[:20]}") and "last_id" in message and len(message) < 300

    served(check)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_page_of_input_items_reads_no_other_item(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, loads = list[int](), exact_json.loads

    def counted(data: bytes) -> Any:
        read.append(len(data))
        return loads(data)

    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        _, reply = await server.post(PATH, {"input": [{"role": "user", "content": "x" * 100}] * 1000})
        monkeypatch.setattr(exact_json, "loads", counted)
        _, page = await server.get(f"{PATH}/{reply['id']}/input_items?limit=2&order={order}")
        _, page = await server.get(f"{PATH}/{reply['id']}/input_items?limit=2&order={order}&after={page['last_id']}")
        made, places = reply["id"].removeprefix("resp_"), (2, 3) if order == "asc" else (997, 996)
        assert [each["id"] for each in page["data"]] == [f"msg_{made}_{place}" for place in places]

    served(check)
    assert len(read) == 4 and max(read) < 250


def test_what_a_stored_response_takes_is_counted() -> None:
    """As tracemalloc has it: items of a few bytes, each with an id of its own."""
    items = [(f"{i:0200d}", b"x") for i in range(2000)]
    tracemalloc.start()
    try:
        kept = StoredItems(items)
        del items
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken + 2000 * sys.getsizeof("0" * 200) <= kept.size < 2 * taken + 2000 * sys.getsizeof("0" * 200)


def test_a_refused_chat_is_not_written_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    written, kept = list[int](), responses_chat.kept_items

    def counted(items: list[dict[str, Any]]) -> StoredItems:
        written.append(len(items))
        return kept(items)

    async def check(server: Served) -> None:
        server.engine.says = pieces_of("Hi", 1)
        assert (await server.post(PATH, {"input": [{"role": "user", "content": "REJECT"}] * 3}))[0] == 400
        assert written == []
        assert (await server.post(PATH, {"input": [{"role": "user", "content": "a"}] * 3}))[0] == 200
        assert written == [3]

    monkeypatch.setattr(responses_chat, "kept_items", counted)
    served(check)


@pytest.mark.parametrize("body, options", [({"store": False}, {}), ({}, {"stored_responses_mb": 0})])
def test_what_is_not_stored_is_not_there(body: dict[str, Any], options: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        _, reply = await server.post(PATH, {"input": "Hello", **body})
        assert (await server.get(f"{PATH}/{reply['id']}"))[0] == 404

    served(check, **options)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_is_too_large_for_the_store_says_so(stream: bool) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        body = {"input": "Hello", "metadata": {"a": "x" * 20_000}}
        reply = (await events_of(server, body))[-1]["response"] if stream else (await server.post(PATH, body))[1]
        assert reply["store"] is False
        assert (await server.get(f"{PATH}/{reply['id']}"))[0] == 404

    served(check, stored_responses_mb=0.01)


@pytest.mark.parametrize("limit", [
    "0", "101", "00000000019999", "0" * 9 + "1" + "0" * 5000, "-1", "one", "٥", "1٥", "²", "1_0", ""
])  # fmt: skip
def test_a_limit_of_listed_items_out_of_range_is_refused(limit: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        _, reply = await server.post(PATH, {"input": "Hello"})
        status, error = await server.get(f"{PATH}/{reply['id']}/input_items?limit={limit}")
        assert (status, error["error"]["param"]) == (400, "limit")

    served(check)


@pytest.mark.parametrize("order", ["ASC", "ascending", ""])
def test_an_unknown_order_of_listed_items_is_refused(order: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        _, reply = await server.post(PATH, {"input": "Hello"})
        status, error = await server.get(f"{PATH}/{reply['id']}/input_items?order={order}")
        assert (status, error["error"]["param"]) == (400, "order")

    served(check)


def test_the_store_forgets_the_least_recently_used_first() -> None:
    small, large = Stored(b"x" * 96, StoredItems(), b"[]"), Stored(b"x" * 2000, StoredItems(), b"[]")
    store = ResponseStore(10 * small.size)
    for i in range(10):
        store.put(NOBODY, str(i), small)
    assert all(store.get(NOBODY, str(i)) for i in range(10))
    store.get(NOBODY, "0")
    store.put(NOBODY, "new", small)
    assert (
        store.get(NOBODY, "0") is not None and store.get(NOBODY, "1") is None and store.get(NOBODY, "new") is not None
    )
    store.put(NOBODY, "huge", large)
    assert store.get(NOBODY, "huge") is None and store.get(NOBODY, "new") is not None


def test_the_owner_that_has_most_makes_room_and_no_other() -> None:
    small, store = Stored(b"x" * 90, StoredItems(), b"[]"), ResponseStore(1000)
    first, second = Owner("first", False), Owner("second", False)
    store.put(first, "mine", small)
    for i in range(20):
        assert store.put(second, str(i), small)
    assert store.get(first, "mine") == small and store.num_bytes == 1000
    assert [i for i in range(20) if store.get(second, str(i))] == list(range(11, 20))
    assert store.get(second, "mine") is None and store.get(Owner("admin", True), "mine") == small
    store.remove(second, "mine")
    assert store.get(first, "mine") == small


@pytest.mark.parametrize("change, named", [
    ({"input": [{"type": "reasoning"}]}, "input has nothing that a model reads"),
    ({"input": [{"type": "web_search_call"}]}, "input has nothing that a model reads"),
    ({"input": []}, "input"), ({"input": None}, "input"), ({"input": [3]}, "input[0]"),
    ({"input": [{"role": "boss", "content": "a"}]}, "input[0].role"),
    ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].type"),
    ({"input": [{"type": "computer_call"}]}, "input[0].call_id"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call", "call_id": "a"}]}, "input[0].name"),
    ({"tools": [{"type": 3}]}, "tools[0].type"), ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tool_choice": "required"}, "tool_choice"), ({"background": True}, "background"),
    ({"conversation": "c"}, "conversation"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.json_schema"),
    ({"truncation": "auto"}, "truncation"), ({"max_output_tokens": -1}, "max_output_tokens"),
    ({"temperature": "hot"}, "temperature"), ({"previous_response_id": "resp_0"}, "previous_response_id"),
])  # fmt: skip
def test_what_is_wrong_or_not_built_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {"input": "Hello", **change})
        assert status in (400, 404) and named in reply["error"]["message"]
        assert not server.engine.of_type(Generate)

    served(check)
