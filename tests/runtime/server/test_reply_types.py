"""Every reply and every event of a stream is what the table of routes names: a struct is not checked when it is made.

The engine says a thought, a text and a call, so that each kind of item, block and delta occurs.
"""

import asyncio
from typing import Any

import msgspec
import orjson
import pytest
from msgspec.structs import replace

from ramet.ipc.messages import Generate, PeerDied
from ramet.runtime.server.http import problems
from ramet.runtime.server.http.problems import OpenAIStreamError, StreamError
from ramet.runtime.server.native.admin import RequestState
from ramet.runtime.server.openai.replies import ModelCard
from ramet.runtime.server.routes import NAMED, ROUTES
from tests.fakes.engine import HIDDEN, LIMITS
from tests.fakes.server import Served, served

SAYS = [
    "<think>",
    "hm",
    "</think>",
    "Hello",
    " you",
    '<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>',
]
USER = {"role": "user", "content": "hi"}
USER_TURN = {"role": "user", "content": ["hi"]}
FUNCTION = {"name": "look", "description": "finds", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CHAT = {"messages": [USER], "max_tokens": 20}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
MESSAGE = {"messages": [USER], "max_tokens": 20}
ANTHROPIC_TOOLS = [{"name": "look", "input_schema": {}}]
RESPONSE = {"input": "hi", "tools": [{"type": "function", **FUNCTION}]}
TRUNCATED = {"max_tokens": 2}
POSTED: list[tuple[str, dict[str, Any]]] = [
    ("/generate", {"text": "hi"}),
    ("/generate", {"text": "hi", "stream": True}),
    ("/generate", {"text": ["a", "b"], "sampling_params": {"n": 2}}),
    ("/generate", {"text": ["a", "b"], "stream": True}),
    ("/generate", {"text": "hi", "return_logprob": True, "token_ids_logprob": [3], "return_text_in_logprobs": True}),
    ("/generate", {"text": "hi", "return_logprob": True, "stream": True}),
    ("/generate", {"text": "hi", "return_hidden_states": "last"}),
    ("/generate", {"text": "hi", "sampling_params": {"max_new_tokens": 0}}),
    ("/open_session", {"capacity_of_str_len": 100}),
    ("/language/generate", {"prompt": ["hi"]}),
    ("/language/generate", {"prompt": [USER_TURN], "sampling_params": {"n": 2}, "separate_reasoning": True}),
    ("/language/generate", {"prompt": ["hi"], "return_logprob": True, "separate_reasoning": True, "stream": True}),
    ("/language/select", {"prompt": ["hi"], "choices": [" you", " all"]}),
    ("/language/select", {"prompt": ["hi"], "choices": ["a", "ab"], "method": "unconditional_likelihood_normalized"}),
    ("/language/select", {"prompt": ["hi"], "choices": ["a", "ab"], "method": "exact_sequence"}),
    ("/language/render", {"prompt": ["hi"]}),
    ("/language/end", {"programs": ["a", "b"]}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "best_of": 3, "echo": True}),
    ("/v1/completions", {"prompt": "hi", "logprobs": 0, "echo": True}),
    ("/v1/completions", {"prompt": "hi", "logprobs": 0, **USAGE}),
    ("/v1/completions", {"prompt": "hi", "stream": True, "return_hidden_states": "last", "echo": True}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "n": 2, "tools": TOOLS}),
    ("/v1/chat/completions", {**CHAT, "tools": TOOLS, **USAGE}),
    ("/v1/chat/completions", {**CHAT, "tools": TOOLS, "parallel_tool_calls": False, "logprobs": True, "stream": True}),
    ("/v1/chat/completions", {**CHAT, "logprobs": True, "return_hidden_states": "last", "separate_reasoning": False}),
    ("/v1/chat/completions", {**CHAT, **TRUNCATED}),
    ("/v1/chat/completions", {**CHAT, **TRUNCATED, "stream": True}),
    ("/v1/responses", {"input": "hi", "store": False}),
    ("/v1/responses", {**RESPONSE, "metadata": {"a": "b"}, "reasoning": {"effort": "low"}}),
    ("/v1/responses", {**RESPONSE, "stream": True}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 2, "stream": True}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 2, "include": ["message.output_text.logprobs"]}),
    ("/v1/messages", MESSAGE),
    ("/v1/messages", {**MESSAGE, "tools": ANTHROPIC_TOOLS}),
    ("/v1/messages", {**MESSAGE, "tools": ANTHROPIC_TOOLS, "stream": True}),
    ("/v1/messages", {**MESSAGE, **TRUNCATED, "thinking": {"type": "enabled"}}),
    ("/v1/messages", {**MESSAGE, **TRUNCATED, "stream": True}),
    ("/v1/messages/count_tokens", {"messages": [USER]}),
    ("/v1/embeddings", {"input": "hi"}),
    ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 2}),
    ("/v1/tokenize", {"prompt": "hi"}),
    ("/tokenize", {"prompt": ["hi", "you"]}),
    ("/tokenize", {"messages": [USER]}),
    ("/v1/detokenize", {"tokens": [104, 105]}),
    ("/detokenize", {"tokens": [[104], [105]]}),
    ("/abort_request", {"abort_all": True}),
    ("/flush_cache", {}),
    ("/ui/prefix", {"text": "hi"}),
    ("/ui/node", {"node": 1}),
    ("/pause_generation", {"mode": "in_place"}),
    ("/continue_generation", {}),
    ("/update_weights_from_disk", {"model_path": "b"}),
    ("/update_weight_version", {"new_version": "2"}),
    ("/release_memory_occupation", {"tags": ["weights"]}),
    ("/resume_memory_occupation", {}),
    ("/slow_down", {"forward_sleep_time": None}),
]
ANY_OUTPUT: list[tuple[str, dict[str, Any]]] = [  # what the engine's own tokens answer
    ("/v1/score", {"query": "a", "items": ["b", "c"], "label_token_ids": [1, 2]}),
    ("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c"}]}),
    ("/v1/rerank", {"query": "a", "documents": ["b", "c"], "return_documents": False, "method": "embed"}),
    ("/rerank", {"query": "a", "documents": ["b", "c"]}),
    ("/score", {"text_1": "a", "text_2": ["b", "c"]}),
    ("/pooling", {"input": ["a", "b"], "encoding_format": "base64"}),
    ("/encode", {"text": "a"}),
    ("/encode", {"input_ids": [[1], [2, 3]]}),
]
OF_A_CLASSIFIER: list[tuple[str, dict[str, Any]]] = [
    ("/classify", {"input": ["a", "b"]}),
    ("/v1/classify", {"input": "a"}),
    ("/classify", {"text": "a"}),
    ("/classify", {"text": ["a", "b"]}),
    ("/pooling", {"input": "a"}),
    ("/encode", {"text": "a"}),
]
GOT = sorted(path for path, route in ROUTES.items() if "GET" in route.methods and route.reply is not None)
BROKEN: dict[str, Any] = {"openai": OpenAIStreamError, "native": StreamError}  # streams of one kind of events


def decode_reply(path: str, kind: str, data: bytes) -> None:
    route = ROUTES[path]
    if kind != "text/event-stream":
        msgspec.json.decode(data, type=route.reply)
        return
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith(b"data: ")]
    assert lines
    for line in lines:
        if line != b"[DONE]":
            event = route.event if not line.startswith(b'{"error"') else BROKEN[problems.shape_of(path)]
            msgspec.json.decode(line, type=event)


def test_every_route_with_a_reply_is_asked() -> None:
    asked = {path for path, _ in (*POSTED, *ANY_OUTPUT, *OF_A_CLASSIFIER)} | set(GOT)
    of_adapters = {path for path in ROUTES if path.endswith("_lora_adapter")}  # test_adapter_endpoints.py asks these
    assert asked | of_adapters == {path for path, route in ROUTES.items() if route.reply is not None}


@pytest.mark.parametrize(("path", "body"), [*POSTED, *ANY_OUTPUT, *OF_A_CLASSIFIER])
def test_replies_and_events_to_a_body(path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = None if (path, body) in ANY_OUTPUT else SAYS
        async with server.http.post(path, data=orjson.dumps(body)) as response:
            data = await response.read()
            assert response.status == 200, data
            decode_reply(path, response.content_type, data)

    is_classifier = (path, body) in OF_A_CLASSIFIER
    served(check, limits=replace(LIMITS, num_labels=HIDDEN) if is_classifier else LIMITS)


@pytest.mark.parametrize("path", GOT)
def test_replies_to_get(path: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.get(path)
        assert status == 200
        msgspec.convert(reply, ROUTES[path].reply)

    served(check)


def test_a_thought_a_text_and_a_call_are_an_item_each() -> None:
    async def check(server: Served) -> None:
        server.engine.says = SAYS
        _, reply = await server.post("/v1/responses", RESPONSE)
        assert [item["type"] for item in reply["output"]] == ["reasoning", "message", "function_call"]
        _, reply = await server.post("/v1/messages", {**MESSAGE, "tools": ANTHROPIC_TOOLS})
        assert [block["type"] for block in reply["content"]] == ["thinking", "text", "tool_use"]

    served(check)


def test_what_paths_with_an_id_answer() -> None:
    async def check(server: Served) -> None:
        server.engine.says = SAYS
        _, response = await server.post("/v1/responses", RESPONSE)
        stored = NAMED["/v1/responses/"].operations
        for each in sorted(stored, key=lambda each: each.method == "DELETE"):
            path = f"/v1/responses/{response['id']}{each.tail}"
            async with server.http.request(each.method, path) as answer:
                reply = orjson.loads(await answer.read())
            cancelled = each.tail == "/cancel"  # only a response that runs in the background could be
            assert answer.status == (400 if cancelled else 200)
            msgspec.convert(reply, problems.OpenAIError if cancelled else each.reply)
        _, models = await server.get("/v1/models")
        _, card = await server.get(f"/v1/models/{models['data'][0]['id']}")
        msgspec.convert(card, ModelCard)

    served(check)


def test_the_state_of_a_request() -> None:
    async def check(server: Served) -> None:
        asked = asyncio.create_task(server.post("/generate", {"text": "hi", "rid": "me"}))
        await server.engine.saw(Generate)
        _, reply = await server.get("/v1/requests/me")
        msgspec.convert(reply, RequestState)
        while server.engine.running:
            server.engine.step()
        await asked

    served(check, auto=False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"text": "hi"}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", MESSAGE),
    ],
)
def test_streams_that_break_off(path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        asked = asyncio.create_task(server.http.post(path, data=orjson.dumps({**body, "stream": True})))
        await server.engine.saw(Generate)
        server.engine.step()
        response = await asked  # its headers have come
        server.engine.tell(PeerDied("scheduler", 1))
        data = await response.read()
        assert response.status == 200 and b"process ended" in data
        decode_reply(path, response.content_type, data)

    served(check, auto=False)
