"""Whatever a client sends, it gets a 4xx that names the field, the value and the valid range; the server goes on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from live import Live

from ramet.runtime.config import BUNDLED_MODEL

CONTEXT = 512
VOCABULARY = json.loads((BUNDLED_MODEL / "config.json").read_text())["vocab_size"]


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=20000, context_length=CONTEXT, check_invariants=True) as live:
        yield live
        assert live.generate(text="still here", sampling_params={"max_new_tokens": 2}).status_code == 200
        state = live.state()
        assert state["running_requests"] == state["leased_tokens"] == state["owned_tokens"] == 0


SAMPLING: list[tuple[str, Any, tuple[str, ...]]] = [  # parameter, bad value, what the message must say
    ("max_new_tokens", -1, ("-1", "[0")),
    ("max_new_tokens", 1.5, ("1.5", "integer")),
    ("max_new_tokens", "many", ("many", "integer")),
    ("stop", 5, ("5", "string")),
    ("stop", ["a", 5], ("5", "string")),
    ("stop", ["x"] * 33, ("33", "32")),
    ("stop_token_ids", [-1], ("-1", "vocab|[0")),
    ("stop_token_ids", ["a"], ("a", "token id")),
    ("stop_regex", ["x"] * 33, ("33", "32")),
    ("stop_regex", "a" * 257, ("257", "256")),
    ("stop_regex", "(", ("(",)),
    ("stop_regex", "(?=a)b", ("look",)),
    ("stop_regex", r"(a)\1", ("reference",)),
    ("stop_regex", "a*", ("empty",)),
    ("stop_regex", "(?i)[a-\uffff]x", ("a range of", "256")),
    ("stop", "\ud800", ("surrogate|Unicode|UTF-8",)),
    ("json_schema", "[]", ("[]", "an object")),
    ("stop_regex", "(a{1000}){1000}", ("",)),
    ("temperature", -0.1, ("-0.1", ">= 0")),
    ("temperature", "hot", ("hot", "number")),
    ("temperature", True, ("True", "number")),
    ("top_p", 0, ("0", "(0, 1]")),
    ("top_p", 1.1, ("1.1", "(0, 1]")),
    ("top_k", 0, ("0", "-1")),
    ("top_k", -2, ("-2", "-1")),
    ("top_k", "a", ("a", "integer")),
    ("min_p", -0.1, ("-0.1", "[0, 1]")),
    ("min_p", 2, ("2", "[0, 1]")),
    ("frequency_penalty", 2.1, ("2.1", "[-2, 2]")),
    ("presence_penalty", -2.1, ("-2.1", "[-2, 2]")),
    ("repetition_penalty", 2.1, ("2.1", "[0, 2]")),
    ("repetition_penalty", -1, ("-1", "[0, 2]")),
    ("min_new_tokens", -1, ("-1", "[0")),
    ("min_new_tokens", 129, ("129", "128")),
    ("logit_bias", {"5": 101}, ("101", "[-100, 100]")),
    ("logit_bias", {"x": 1}, ("x", "token id")),
    ("logit_bias", {str(VOCABULARY): 1}, (str(VOCABULARY), f"[0, {VOCABULARY})")),
    ("sampling_seed", 1 << 63, (str(1 << 63), "[-2^63, 2^63)")),
    ("sampling_seed", "s", ("s", "int")),
    ("n", 0, ("0", "[1, 128]")),
    ("n", 5_000_000, ("5000000", "[1, 128]")),
    ("n", 129, ("129", "[1, 128]")),
    ("ignore_eos", "yes", ("yes", "true or false")),
    ("skip_special_tokens", 1, ("1", "true or false")),
    ("spaces_between_special_tokens", [], ("[]", "true or false")),
    ("no_stop_trim", {}, ("{}", "true or false")),
    ("json_schema", "{", ("{", "not valid JSON")),
    ("json_schema", '{"a":' * 65 + "1" + "}" * 65, ("64 levels",)),
    ("json_schema", {"enum": ["a" * 5_000_000]}, ("262144",)),
    ("regex", "a\0", ("NUL",)),
    ("ebnf", "\0", ("NUL",)),
    ("structural_tag", "{}", ("{}", "`format`")),
    ("grammar_backend", "antlr", ("antlr", "llguidance")),
    ("custom_params", 5, ("5", "object")),
]


@pytest.mark.parametrize(
    ("name", "value", "words"), SAMPLING, ids=[f"{n}={json.dumps(v)[:20]}" for n, v, _ in SAMPLING]
)
def test_sampling_parameters_out_of_range(server: Live, name: str, value: Any, words: tuple[str, ...]):
    reply = server.generate(text="x", sampling_params={name: value})
    assert reply.status_code == 400, reply.text
    message = reply.json()["error"]["message"]
    assert name in message
    for word in words:
        assert any(option in message for option in word.split("|")), message


TOO_LONG = f"tokens, must have at most {CONTEXT - 1}"
BODIES: list[tuple[str, Any, tuple[str, ...]]] = [
    ("no prompt", {}, ("text", "input_ids")),
    ("two prompts", {"text": "a", "input_ids": [1]}, ("text", "input_ids")),
    ("empty text", {"text": ""}, ("text",)),
    ("empty ids", {"input_ids": []}, ("input_ids",)),
    ("empty batch item", {"input_ids": [[1], []]}, ("input_ids",)),
    ("an id outside the vocabulary", {"input_ids": [1, VOCABULARY]}, ("input_ids", str(VOCABULARY))),
    ("a huge id", {"input_ids": [1 << 40]}, ("input_ids", str(1 << 40))),
    ("a negative id", {"input_ids": [-1]}, ("input_ids", "-1")),
    ("a float id", {"input_ids": [1.5]}, ("input_ids",)),
    ("ids as text", {"input_ids": ["a"]}, ("input_ids",)),
    ("text as number", {"text": 5}, ("text",)),
    ("over-long prompt", {"input_ids": [5] * CONTEXT}, ("input_ids", TOO_LONG)),
    ("over-long text", {"text": "hello " * CONTEXT}, ("text", TOO_LONG)),
    ("5 MB prompt", {"text": "a" * 5_000_000}, ("text", TOO_LONG)),
    ("half a surrogate", {"text": "\ud800"}, ("text|body|Unicode|UTF-8",)),
    ("sampling_params as list of the wrong length", {"text": "a", "sampling_params": [{}, {}]}, ("sampling_params",)),
    ("sampling_params as text", {"text": "a", "sampling_params": "x"}, ("sampling_params",)),
    ("stream as text", {"text": "a", "stream": "x"}, ("stream",)),
    ("rid as number", {"text": "a", "rid": 5}, ("rid",)),
    ("two constraints", {"text": "a", "sampling_params": {"regex": "a", "ebnf": "b"}}, ("Only one of json_schema",)),
    ("an image", {"text": "a", "image_data": "x.png"}, ("image_data", "takes no images")),
    ("an adapter", {"text": "a", "lora_path": "x"}, ("lora_path", "no adapter is loaded")),
    ("too many best tokens", {"text": "a", "top_logprobs_num": 257}, ("top_logprobs_num", "257", "256")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "words"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
def test_bad_bodies(server: Live, body: Any, words: tuple[str, ...]):
    reply = requests.post(server.url + "/generate", data=json.dumps(body).encode(), timeout=20)
    assert 400 <= reply.status_code < 500, reply.text
    message = reply.json()["error"]["message"]
    for word in words:
        assert any(option in message for option in word.split("|")), message


RAW: list[tuple[str, bytes]] = [
    ("broken JSON", b'{"text": "a"'),
    ("not JSON", b"hello"),
    ("empty", b""),
    ("a list", b"[]"),
    ("a number", b"5"),
    ("null", b"null"),
    ("broken UTF-8", b'{"text": "\xff\xfe"}'),
    ("NaN", b'{"text": "a", "sampling_params": {"temperature": NaN}}'),
    ("infinity", b'{"text": "a", "sampling_params": {"temperature": 1e999}}'),
    ("200 deep", b'{"text": "a", "sampling_params": {"custom_params": ' + b'{"a":' * 200 + b"1" + b"}" * 202),
    ("200 deep list", b'{"text": ' + b"[" * 200 + b"]" * 200 + b"}"),
    ("100,000 deep", b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ("a million arrays", b'{"text": [' + b"[]," * 1_000_000 + b"[]]}"),
    ("a huge integer", b'{"text": "a", "sampling_params": {"n": 1' + b"0" * 5000 + b"}}"),
]


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
@pytest.mark.parametrize("raw", [r[1] for r in RAW], ids=[r[0] for r in RAW])
def test_bad_bytes(server: Live, path: str, raw: bytes):
    if path == "/v1/completions":  # the same faults where completions keeps them: at the top of the body
        raw = raw.replace(b'"text":', b'"prompt":').replace(b'"sampling_params": {', b"").replace(b"}}", b"}")
        raw = raw.replace(b"}" * 201, b"}" * 200)
    reply = requests.post(server.url + path, data=raw, timeout=20)
    assert 400 <= reply.status_code < 500, reply.text
    assert reply.json()["error"]["message"]


def test_a_body_over_the_limit_is_413(server: Live):
    reply = requests.post(server.url + "/generate", data=b'{"text": "' + b"a" * (33 << 20) + b'"}', timeout=60)
    assert reply.status_code == 413 and "--max-body-mb" in reply.json()["error"]["message"]


def test_an_unknown_model_is_404_and_names_the_served_one(server: Live):
    reply = requests.post(server.url + "/v1/completions", json={"model": "gpt-9", "prompt": "a"}, timeout=20)
    assert reply.status_code == 404
    error = reply.json()["error"]
    assert "gpt-9" in error["message"] and "ramet-bundled" in error["message"] and error["param"] == "model"


def test_unknown_keys_are_ignored(server: Live):
    body = {"text": "a", "something_new": 1, "sampling_params": {"another": 2, "max_new_tokens": 1}}
    assert server.generate(**body).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/abort_request", {"rid": ""}, 400),
        ("/abort_request", {}, 400),
        ("/nowhere", {}, 404),
        ("/v1/tokenize", {}, 400),
    ],
)
def test_other_endpoints_refuse_clearly(server: Live, path: str, body: Any, status: int):
    reply = requests.post(server.url + path, json=body, timeout=20)
    assert reply.status_code == status and reply.json()["error"]["message"]


def test_one_bad_item_refuses_its_batch_and_nothing_runs_on(server: Live):
    reply = server.generate(text=["good", ""], sampling_params={"max_new_tokens": 400, "ignore_eos": True})
    assert reply.status_code == 400 and "text" in reply.json()["error"]["message"]
