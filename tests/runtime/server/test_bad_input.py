"""Whatever a client sends: a 4xx that names field, value and range; nothing reaches the engine, the server goes on."""

import asyncio
import gzip
import json
from typing import Any

import orjson
import pytest

from ramet.ipc.messages import Abort, Generate
from ramet.ipc.params import SamplingParams
from ramet.runtime.server.routes import ROUTES
from tests.fakes.engine import HIDDEN, VOCAB
from tests.fakes.server import Served, served

HUGE = 10**40
DEEP = b'{"text": "a", "prompt": "a", "x": ' + b"[" * 200 + b"]" * 200 + b"}"

# parameter, value, a piece of the message beside the name
BAD_PARAMS: list[tuple[str, Any, str]] = [
    ("max_new_tokens", -1, "-1"), ("max_new_tokens", "5", "'5'"), ("max_new_tokens", 1.5, "1.5"),
    ("max_new_tokens", HUGE, "[0, "), ("max_new_tokens", True, "True"), ("max_new_tokens", [5], "[5]"),
    ("stop", 5, "5"), ("stop", [1], "1"), ("stop", ["x"] * 33, "32"), ("stop", "x" * 2000, "1024"),
    ("stop_token_ids", "a", "'a'"), ("stop_token_ids", [-1], "-1"), ("stop_token_ids", [1.5], "1.5"),
    ("stop_token_ids", list(range(2000)), "1024"), ("stop_token_ids", [True], "True"),
    ("stop_regex", 5, "5"), ("stop_regex", ["a"] * 33, "32"), ("stop_regex", "a" * 300, "256"),
    ("temperature", -0.1, ">= 0"), ("temperature", "hot", "'hot'"), ("temperature", [1], ">= 0"),
    ("temperature", False, "False"), ("top_p", 0, "(0, 1]"), ("top_p", 1.1, "(0, 1]"), ("top_p", "a", "(0, 1]"),
    ("top_p", [0.5], "(0, 1]"), ("top_k", 0, "in [1, 1073741824]"), ("top_k", -2, "in [1, "), ("top_k", "a", "'a'"),
    ("top_k", 2.5, "2.5"), ("min_p", -0.1, "[0, 1]"), ("min_p", 1.1, "[0, 1]"), ("min_p", {}, "[0, 1]"),
    ("frequency_penalty", 2.1, "[-2, 2]"), ("frequency_penalty", "x", "[-2, 2]"), ("presence_penalty", -2.1, "[-2, 2]"),
    ("repetition_penalty", -1, "[0, 2]"), ("repetition_penalty", 2.1, "[0, 2]"),
    ("min_new_tokens", -1, "max_new_tokens"), ("min_new_tokens", 200, "128"), ("min_new_tokens", "a", "'a'"),
    ("logit_bias", [1], "[1]"), ("logit_bias", {"a": 1}, "'a'"), ("logit_bias", {"1": 101}, "[-100, 100]"),
    ("logit_bias", {str(i): 1 for i in range(1025)}, "1024"), ("logit_bias", {"1": 0, "01": 0}, "twice"),
    ("logit_bias", {"-1": 1}, "'-1'"), ("logit_bias", {str(2**31): 1}, str(2**31)),
    ("sampling_seed", 2**63, "[-2^63, 2^63)"), ("sampling_seed", "x", "[-2^63, 2^63)"),
    ("n", 0, "[1, 128]"), ("n", 129, "[1, 128]"),
    ("n", 5_000_000, "[1, 128]"), ("n", "2", "[1, 128]"), ("n", -1, "[1, 128]"),
    ("ignore_eos", "yes", "'yes'"), ("ignore_eos", 1, "1"), ("skip_special_tokens", 0, "0"),
    ("spaces_between_special_tokens", "a", "'a'"), ("no_stop_trim", [], "[]"), ("json_schema", 5, "5"),
    ("json_schema", "[", "not valid JSON"), ("json_schema", "[]", "a JSON schema"), ("regex", "a\0", "NUL"),
    ("regex", 5, "string"), ("ebnf", "x" * 300_000, "262144"), ("structural_tag", "x", "not valid JSON"),
    ("structural_tag", {}, "`format`"), ("grammar_backend", "antlr", "'llguidance' or 'outlines' or 'xgrammar'"),
    ("custom_params", 5, "object"),
]  # fmt: skip

GENERATE = "/generate"
COMPLETIONS = "/v1/completions"
COMPLETIONS_NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}


def error_of(reply: Any) -> str:
    assert set(reply) == {"error"}, reply
    message = reply["error"]["message"]
    assert isinstance(message, str) and len(message) < 400
    return message


async def goes_on(server: Served) -> None:
    """Nothing of what was refused reached the engine, and the next request is served."""
    assert server.engine.of_type(Generate) == []
    for path, body in ((GENERATE, {"text": "a"}), (COMPLETIONS, {"prompt": "a"})):
        status, _ = await server.post(path, body)
        assert status == 200


def test_every_parameter_out_of_range_on_generate() -> None:
    async def check(server: Served) -> None:
        for name, value, piece in BAD_PARAMS:
            body = json.dumps({"text": "a", "sampling_params": {name: value}}).encode()
            status, reply = await server.post(GENERATE, body)
            assert status == 400, (name, value)
            message = error_of(reply)
            assert f"sampling_params.{name}" in message and piece in message, (name, value, message)
        await goes_on(server)

    served(check)


def test_every_parameter_out_of_range_on_completions() -> None:
    async def check(server: Served) -> None:
        for name, value, piece in BAD_PARAMS:
            name = COMPLETIONS_NAMES.get(name, name)
            status, reply = await server.post(COMPLETIONS, json.dumps({"prompt": "a", name: value}).encode())
            assert status == 400, (name, value)
            message = error_of(reply)
            assert message.startswith(name) and "sampling_params" not in message, (name, value, message)
            assert piece in message or name == "min_tokens", (name, value, message)
            assert reply["error"]["param"].startswith(name) and reply["error"]["type"] == "invalid_request_error"
        await goes_on(server)

    served(check)


# body, pieces of the message
BAD_GENERATE: list[tuple[Any, tuple[str, ...]]] = [
    ({}, ("text", "input_ids", "exactly one")),
    ({"text": "a", "input_ids": [1]}, ("exactly one",)),
    ({"text": ""}, ("text", "empty")),
    ({"text": []}, ("text", "at least one")),
    ({"text": ["a", ""]}, ("text[1]", "empty")),
    ({"text": 5}, ("text", "5", "string")),
    ({"text": ["a", 5]}, ("text[1]", "5")),
    ({"text": {"a": 1}}, ("text",)),
    ({"input_ids": []}, ("input_ids", "empty")),
    ({"input_ids": [[]]}, ("input_ids[0]", "empty")),
    ({"input_ids": "a"}, ("input_ids", "'a'", "list")),
    ({"input_ids": [1, -1]}, ("input_ids[1]", "-1", f"[0, {VOCAB})")),
    ({"input_ids": [VOCAB]}, ("input_ids[0]", str(VOCAB), f"[0, {VOCAB})")),
    ({"input_ids": [2**31]}, ("input_ids[0]", str(2**31))),
    ({"input_ids": [1.5]}, ("input_ids[0]", "1.5")),
    ({"input_ids": [True]}, ("input_ids[0]", "True")),
    ({"input_ids": ["a"]}, ("input_ids[0]", "'a'")),
    ({"input_ids": [1, [2]]}, ("input_ids[1]", "[2]")),
    ({"input_ids": [[1], 2]}, ("input_ids[1]", "2", "list")),
    ({"input_ids": [[1], [[2]]]}, ("input_ids[1][0]", "[2]")),
    ({"text": "a", "sampling_params": "x"}, ("sampling_params", "'x'")),
    ({"text": ["a"], "sampling_params": [1]}, ("sampling_params[0]", "1")),
    ({"text": "a", "sampling_params": [1]}, ("sampling_params", "must be one value for one prompt")),
    ({"text": "a", "sampling_params": [{}]}, ("sampling_params", "one prompt")),
    ({"text": ["a", "b"], "sampling_params": [{}]}, ("sampling_params", "1 entries", "2")),
    ({"text": ["a", "b"], "sampling_params": [{}, {"top_p": 7}]}, ("sampling_params[1].top_p", "7")),
    ({"text": "a", "rid": 5}, ("rid", "5", "string")),
    ({"text": "a", "rid": ""}, ("rid", "1 to")),
    ({"text": "a", "rid": "x" * 1000}, ("rid", "256")),
    ({"text": "a", "rid": ["x"]}, ("rid", "one prompt")),
    ({"text": ["a", "b"], "rid": ["x"]}, ("rid", "1 entries", "2")),
    ({"text": "a", "stream": "yes"}, ("stream", "'yes'", "true or false")),
    ({"text": "a", "stream": 1}, ("stream", "1")),
    ({"text": ["a"] * 200, "sampling_params": {"n": 128}}, ("text", "25600", "16384")),
    ({"text": "a", "return_logprob": "yes"}, ("return_logprob", "'yes'")),
    ({"text": "a", "return_logprob": [True]}, ("return_logprob", "one prompt")),
    ({"text": "a", "top_logprobs_num": 10**9}, ("top_logprobs_num", str(10**9), "[0, 256]")),
    ({"text": "a", "top_logprobs_num": -1}, ("top_logprobs_num", "-1", "[0, 256]")),
    ({"text": ["a", "b"], "top_logprobs_num": [1]}, ("top_logprobs_num", "1 entries", "2")),
    ({"text": "a", "top_logprobs_num": "x"}, ("top_logprobs_num", "'x'", "integer")),
    ({"text": "a", "logprob_start_len": -2}, ("logprob_start_len", "-2", ">= 0")),
    ({"text": "a", "logprob_start_len": 2**40}, ("logprob_start_len", str(2**40))),
    ({"text": "a", "token_ids_logprob": [1, -1]}, ("token_ids_logprob[1]", "-1", "token id")),
    ({"text": "a", "token_ids_logprob": [True]}, ("token_ids_logprob[0]", "True")),
    ({"text": "a", "token_ids_logprob": [[1]]}, ("token_ids_logprob", "one prompt")),
    ({"text": ["a", "b"], "token_ids_logprob": [[1], ["x"]]}, ("token_ids_logprob[1][0]", "'x'")),
    ({"text": "a", "token_ids_logprob": list(range(1025))}, ("token_ids_logprob", "1025", "1024")),
    ({"text": "a", "token_ids_logprob": "x"}, ("token_ids_logprob", "'x'", "list")),
    ({"text": "a", "return_text_in_logprobs": "x"}, ("return_text_in_logprobs", "'x'")),
    ({"text": "a", "priority": 2**31}, ("priority", str(2**31), str(2**31 - 1))),
    ({"text": "a", "priority": "high"}, ("priority", "'high'", "integer")),
    ({"text": "a", "cache_salt": 5}, ("cache_salt", "5", "string")),
    ({"text": "a", "prefix_lease_s": -0.5}, ("prefix_lease_s", "-0.5", ">= 0")),
    ({"text": "a", "prefix_lease_s": "long"}, ("prefix_lease_s", "'long'", "number")),
    ({"text": "a", "prefix_lease_s": True}, ("prefix_lease_s", "True", "number")),
    ({"text": "a", "prefix_lease_s": [5]}, ("prefix_lease_s", "one prompt")),
    ({"text": ["a", "b"], "prefix_lease_s": [5]}, ("prefix_lease_s", "1 entries", "2")),
    ({"text": ["a", "b"], "prefix_lease_s": [5, -1]}, ("prefix_lease_s", "-1", ">= 0")),
    (b'{"text": "a", "prefix_lease_s": NaN}', ("prefix_lease_s", "not valid JSON")),
    (b'{"text": "a", "prefix_lease_s": 1e999}', ("prefix_lease_s", "1e999")),
    ({"text": "a", "cache_salt": "s" * 1025}, ("cache_salt", "1025", "1024")),
    ({"text": "a", "extra_key": ["k", "l"]}, ("extra_key", "one prompt")),
    ({"text": "a", "return_hidden_states": "first"}, ("return_hidden_states", "'first'", "last")),
    ({"text": "a", "return_hidden_states": 5}, ("return_hidden_states", "5")),
    ({"text": "a", "custom_logit_processor": "p"}, ("custom_logit_processor", "'p'", "--enable-custom")),
    ({"text": "a", "custom_logit_processor": 5}, ("custom_logit_processor", "5", "string")),
    ({"text": "a", "input_embeds": [[0.1] * HIDDEN]}, ("text and input_ids and input_embeds", "exactly one")),
    ({"input_embeds": []}, ("input_embeds", "[]", "empty")),
    ({"input_embeds": "x"}, ("input_embeds", "'x'", "list")),
    ({"input_embeds": [[[0.1] * HIDDEN], []]}, ("input_embeds[1]", "[]", "empty")),
    ({"input_embeds": [[0.1] * (HIDDEN + 1)]}, ("input_embeds[0]", f"{HIDDEN + 1} numbers", str(HIDDEN))),
    ({"input_embeds": [[0.1] * HIDDEN, 5]}, ("input_embeds[1]", "5")),
    ({"input_embeds": [["x"] * HIDDEN]}, ("input_embeds[0][0]", "'x'", "a number")),
    ({"input_embeds": [[1e9] * HIDDEN]}, ("input_embeds[0]", "10000")),
    ({"input_embeds": [[[0.1] * HIDDEN], [[True] * HIDDEN]]}, ("input_embeds[1][0][0]", "a number")),
    ({"text": "a", "sampling_params": {"regex": "a", "ebnf": "b"}}, ("Only one of json_schema, regex, ebnf",)),
    ({"text": "a", "sampling_params": {"ebnf": "b\0"}}, ("sampling_params.ebnf", "NUL")),
    ({"text": "a", "sampling_params": {"regex": 5}}, ("sampling_params.regex", "5", "string")),
]  # fmt: skip


@pytest.mark.parametrize("body, pieces", BAD_GENERATE, ids=lambda value: str(value)[:40])
def test_bad_bodies_on_generate(body: Any, pieces: tuple[str, ...]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(GENERATE, body)
        assert status == 400
        message = error_of(reply)
        assert all(piece in message for piece in pieces), message
        await goes_on(server)

    served(check)


@pytest.mark.parametrize("field, value, type_error", [
    ("routed_experts_prompt_start", 3, "x"),
])  # fmt: skip
def test_what_is_not_built_is_refused_by_name(field: str, value: object, type_error: object) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(GENERATE, {"text": "a", field: value})
        assert status == 400 and field in error_of(reply) and "not built yet" in error_of(reply)
        status, reply = await server.post(GENERATE, {"text": "a", field: type_error})
        assert status == 400 and field in error_of(reply) and "must be" in error_of(reply)
        await goes_on(server)

    served(check)


def test_neutral_values_and_unknown_keys_ask_for_nothing() -> None:
    async def check(server: Served) -> None:
        neutral = {
            "image_data": None, "return_logprob": False, "logprob_start_len": -1, "top_logprobs_num": 0,
            "lora_path": [None], "return_text_in_logprobs": False, "custom_logit_processor": None, "priority": 0,
            "return_hidden_states": False, "return_routed_experts": False, "session_params": {}, "extra_key": None,
            "cache_salt": "", "stream": None,
            "token_ids_logprob": [], "prefix_lease_s": 0, "sampling_params": None, "rid": None, "input_ids": None,
            "no_such_field": {"deep": [1]},
        }  # fmt: skip
        status, _ = await server.post(GENERATE, {"text": ["a"], **neutral})
        assert status == 200
        null = {"frequency_penalty": 0, "repetition_penalty": 1.0, "logit_bias": {}, "json_schema": None, "other": 1}
        status, _ = await server.post(GENERATE, {"text": "a", "sampling_params": null})
        assert status == 200
        assert server.engine.of_type(Generate)[1].spec.params == SamplingParams()

    served(check)


BAD_COMPLETIONS: list[tuple[Any, str]] = [
    ({}, "prompt"), ({"prompt": None}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt[0]"), ({"prompt": 5}, "prompt"), ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": ["a", 5]}, "prompt[1]"), ({"prompt": [5, "a"]}, "prompt[1]"), ({"prompt": [[5], "a"]}, "prompt[1]"),
    ({"prompt": [[]]}, "prompt[0]"), ({"prompt": [-1]}, "prompt[0]"), ({"prompt": [VOCAB]}, "prompt[0]"),
    ({"prompt": [None]}, "prompt[0]"), ({"prompt": ["a"] * 200, "n": 128}, "prompt"),
    ({"prompt": "a", "model": 5}, "model"), ({"prompt": "a", "stream": "x"}, "stream"),
    ({"prompt": "a", "stream_options": 5}, "stream_options"),
    ({"prompt": "a", "stream_options": {"include_usage": "x"}}, "stream_options.include_usage"),
    ({"prompt": "a", "echo": 1}, "echo"),
    ({"prompt": "a", "best_of": "x"}, "best_of"), ({"prompt": "a", "best_of": 1, "n": 2}, "best_of"),
    ({"prompt": "a", "best_of": 129}, "best_of"), ({"prompt": "a", "best_of": 2, "stream": True}, "best_of"),
    ({"prompt": "a", "suffix": 5}, "suffix"), ({"prompt": "a", "rid": ""}, "rid"),
    ({"prompt": "a", "seed": 2**63}, "seed"), ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
    ({"prompt": "a", "max_tokens": 4, "min_tokens": 5}, "min_tokens"),
    ({"prompt": "a", "logprobs": 257}, "logprobs"), ({"prompt": "a", "logprobs": -1}, "logprobs"),
    ({"prompt": "a", "logprobs": "x"}, "logprobs"), ({"prompt": "a", "priority": "x"}, "priority"),
    ({"prompt": "a", "custom_logit_processor": "x"}, "custom_logit_processor"),
    ({"prompt": "a", "return_hidden_states": "x"}, "return_hidden_states"),
    ({"prompt": "a", "cache_salt": ["x"]}, "cache_salt"), ({"prompt": "a", "extra_key": "x" * 2000}, "extra_key"),
]  # fmt: skip


@pytest.mark.parametrize("body, param", BAD_COMPLETIONS, ids=lambda value: str(value)[:40])
def test_bad_bodies_on_completions(body: Any, param: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(COMPLETIONS, body)
        assert status == 400 and reply["error"]["param"] == param
        assert set(reply["error"]) == {"message", "type", "param", "code"} and param in error_of(reply)
        await goes_on(server)

    served(check)


BAD_BYTES = [
    (b"", "JSON"), (b"{", "JSON"), (b"[]", "object"), (b'"a"', "object"), (b"5", "object"), (b"null", "object"),
    (b'{"text": "\xff\xfe"}', "UTF-8"), (b'{"text": "\xc3"}', "UTF-8"), (b'{"text": "\\ud800"}', "JSON"),
    (b'{"text": "a", "sampling_params": {"temperature": NaN}}', "temperature"),
    (b'{"text": "a", "sampling_params": {"temperature": Infinity}}', "temperature"),
    (b'{"text": "a", "sampling_params": {"temperature": 1e999}}', "temperature"),
    (b'{"text": "a",}', "JSON"), (b"{'text': 'a'}", "JSON"), (b'{"text": "a\x00b"}', "JSON"), (b"\x00\x01\x02", "JSON"),
    (DEEP, "64 levels"), (b"[" * 30_000, "JSON"), (b"[" * 100_000, "lists and objects"),
    (b'{"a":' * 100 + b"1" + b"}" * 100, "64 levels"), (b"text=a", "JSON"),
]  # fmt: skip


@pytest.mark.parametrize("path", [GENERATE, COMPLETIONS, "/v1/tokenize", "/abort_request"])
def test_broken_bytes(path: str) -> None:
    async def check(server: Served) -> None:
        for data, piece in BAD_BYTES:
            status, reply = await server.post(path, data)
            if path == "/abort_request" and not data:
                piece = "rid is missing"  # an empty body of a command is {}
            assert status == 400 and piece in error_of(reply), (data[:40], reply)
        assert server.engine.sent == []
        await goes_on(server)

    served(check)


POSTS = sorted(path for path, route in ROUTES.items() if "POST" in route.methods and route.body is not None)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_is_no_number_in_json_is_refused_on_every_path(number: bytes) -> None:
    async def check(server: Served) -> None:
        for path in POSTS:
            status, reply = await server.post(path, b'{"text": "a", "metadata": {"a": [' + number + b"]}}")
            assert status == 400 and "not valid JSON" in orjson.dumps(reply).decode(), (path, reply)
        assert server.engine.sent == [] and len(POSTS) > 30

    served(check)


@pytest.mark.parametrize("size", [0, 1 << 17, 3 << 19])
@pytest.mark.parametrize("number", [b"1", b"12345678901234567890.5"])
def test_the_last_value_of_a_key_that_comes_twice_counts(size: int, number: bytes) -> None:
    """Whoever reads a body of this size, and whether or not its numbers keep their digits."""

    async def check(server: Served) -> None:
        pad = b'", "k": ' + number + b', "pad": "' + b"a" * size + b'", "'
        status, reply = await server.post(GENERATE, b'{"text": 7, "text": "a' + pad + b'text": "b"}')
        sent = [message.content.text for _, message in server.engine.sent if isinstance(message, Generate)]
        assert status == 200 and sent == ["b"], reply

    served(check)


def test_null_characters_inside_text_are_text() -> None:
    async def check(server: Served) -> None:
        status, _ = await server.post(GENERATE, {"text": "a\x00b"})
        assert status == 200 and server.engine.of_type(Generate)[0].content.text == "a\x00b"

    served(check)


def test_a_body_over_the_limit_is_a_413_that_names_the_option() -> None:
    async def check(server: Served) -> None:
        for data in (orjson.dumps({"text": "x" * 200_000}), orjson.dumps({"text": "x" * 5_000_000})):
            status, reply = await server.post(GENERATE, data)
            assert status == 413 and "must have at most 104857 (--max-body-mb 0.1)" in error_of(reply)
            assert f"has {len(data)} bytes" in error_of(reply)
        await goes_on(server)

    served(check, max_body_mb=0.1)


def test_a_body_that_says_it_is_over_the_limit_is_refused_before_it_comes() -> None:
    async def check(server: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n")
        assert b" 413 " in await reader.readline()
        writer.close()

    served(check, max_body_mb=0.1)


def test_a_small_body_that_unpacks_to_a_large_one_is_a_413() -> None:
    async def check(server: Served) -> None:
        bomb = gzip.compress(orjson.dumps({"text": "x" * 5_000_000}))
        status, _ = await server.post(GENERATE, bomb, headers={"Content-Encoding": "gzip"})
        assert status == 413
        status, _ = await server.post(GENERATE, b"no gzip", headers={"Content-Encoding": "gzip"})
        assert status == 400

    served(check, max_body_mb=1)


@pytest.mark.parametrize("path", [GENERATE, "/nowhere"])
def test_a_connection_whose_body_cannot_be_unpacked_goes_on(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Served) -> None:
        async with server.http.post(path, data=b"no gzip", headers={"Content-Encoding": "gzip"}) as response:
            assert response.status in (400, 404) and "Connection" not in response.headers
        await goes_on(server)
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    served(check)


def test_the_tokenizers_refusal_is_a_400_under_the_clients_own_field() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(GENERATE, {"text": ["a", "REJECT"], "stream": True})
        assert status == 400 and error_of(reply) == "text[1] has 9999 tokens, must have at most 1023"
        status, reply = await server.post(COMPLETIONS, {"prompt": "REJECT"})
        assert status == 400 and reply["error"]["param"] == "prompt"

    served(check)


def test_one_refused_prompt_ends_the_whole_batch() -> None:
    async def check(server: Served) -> None:
        status, _ = await server.post(GENERATE, {"text": ["a", "REJECT"]})
        assert status == 400
        (abort,) = await server.engine.saw(Abort)
        assert abort.uids == [1]
        server.engine.abort(abort.uids, "gone")
        assert server.client.num_open == 0

    served(check, auto=False)
