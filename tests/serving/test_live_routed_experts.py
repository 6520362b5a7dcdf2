"""Which experts tokens went through, asked of a server in the forms of SGLang's and of vLLM's clients."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import requests
from live import Live
from tiny_families import make_family

LAYERS, SPARSE, PER_TOKEN = 3, [1, 2], 3  # of the checkpoint: its first layer has one MLP
PROMPT = [5, 9, 200, 31, 77, 8, 120, 300]
GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
COMPLETION: dict[str, Any] = {"prompt": PROMPT, "temperature": 0, "max_tokens": 6, "ignore_eos": True}
Routes = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = make_family(tmp_path_factory.mktemp("moe"), "glm4-moe")
    options = dict(model_path=folder, dtype="float32", max_total_tokens=512, check_invariants=True)
    with Live(**options, enable_return_routed_experts=True) as live:
        yield live


def post(server: Live, path: str, **body: Any) -> requests.Response:
    return requests.post(server.url + path, json=body, timeout=60)


def whole(text: str) -> Routes:
    """SGLang's: flat int32, whose shape the client knows."""
    flat = np.frombuffer(base64.b64decode(text.encode("utf-8")), dtype=np.int32)
    return flat.reshape(-1, LAYERS, PER_TOKEN)


def compact(text: str) -> Routes:
    """vLLM's: a file of numpy's."""
    found: Routes = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
    return found


def events(reply: requests.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in reply.text.split("\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def expected(server: Live) -> Routes:
    """Of /generate, which is compared with transformers elsewhere."""
    meta = post(server, "/generate", input_ids=PROMPT, sampling_params=GREEDY, return_routed_experts=True).json()
    routes = whole(meta["meta_info"]["routed_experts"])
    assert routes.shape == (len(PROMPT) + 6 - 1, LAYERS, PER_TOKEN)
    assert not routes[:, 0].any() and routes[:, SPARSE].any(axis=(1, 2)).all()
    return routes


def test_generate_streams_them_with_the_last_reply_of_each_sample(server: Live, expected: Routes) -> None:
    body = {"input_ids": PROMPT, "sampling_params": {**GREEDY, "n": 2}, "return_routed_experts": True, "stream": True}
    told = [each for each in events(post(server, "/generate", **body)) if "routed_experts" in each["meta_info"]]
    assert sorted(each["index"] for each in told) == [0, 1]
    for each in told:
        assert each["meta_info"]["finish_reason"] is not None
        np.testing.assert_array_equal(whole(each["meta_info"]["routed_experts"]), expected)


def test_a_batch_asks_for_each_prompt(server: Live, expected: Routes) -> None:
    asked = {"return_routed_experts": [True, True, None], "routed_experts_start_len": [3, 8, None]}
    replies = post(server, "/generate", input_ids=[PROMPT] * 3, sampling_params=GREEDY, **asked).json()
    metas = [reply["meta_info"] for reply in replies]
    np.testing.assert_array_equal(whole(metas[0]["routed_experts"]), expected[3:])
    np.testing.assert_array_equal(whole(metas[1]["routed_experts"]), expected[8:])
    assert "routed_experts" not in metas[2]


def test_a_completion_has_those_of_its_first_choice(server: Live, expected: Routes) -> None:
    asked = {"return_routed_experts": True, "routed_experts_start_len": 2, "n": 2}
    reply = post(server, "/v1/completions", **COMPLETION, **asked).json()
    np.testing.assert_array_equal(whole(reply["sglext"]["routed_experts"]), expected[2:])
    assert not any("routed_experts" in choice for choice in reply["choices"])
    streamed = events(post(server, "/v1/completions", **COMPLETION, **asked, stream=True))
    (told,) = [chunk for chunk in streamed if "sglext" in chunk]
    assert told is streamed[-1] and told["choices"] == []
    np.testing.assert_array_equal(whole(told["sglext"]["routed_experts"]), expected[2:])


def test_usage_comes_behind_them_in_a_stream(server: Live) -> None:
    body = {**COMPLETION, "return_routed_experts": True, "stream": True, "stream_options": {"include_usage": True}}
    *_, told, last = events(post(server, "/v1/completions", **body))
    assert told["usage"] is None and "sglext" in told
    assert last["usage"]["completion_tokens"] == 6 and "sglext" not in last


def test_every_choice_has_the_compact_form(server: Live, expected: Routes) -> None:
    body = {**COMPLETION, "routed_experts_prompt_start": 1, "n": 2}
    reply = post(server, "/v1/completions", **body).json()
    assert "sglext" not in reply
    for choice in reply["choices"]:
        routes = compact(choice["routed_experts"])
        assert routes.dtype == np.uint8
        np.testing.assert_array_equal(routes, expected[1:, SPARSE])


def test_a_chat_has_both_forms(server: Live) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    first = post(server, "/v1/chat/completions", **body, return_routed_experts=True).json()
    second = post(server, "/v1/chat/completions", **body, routed_experts_prompt_start=0).json()
    routes = whole(first["sglext"]["routed_experts"])
    assert len(routes) == first["usage"]["total_tokens"] - 1
    np.testing.assert_array_equal(compact(second["choices"][0]["routed_experts"]), routes[:, SPARSE])
    (told,) = [e for e in events(post(server, "/v1/chat/completions", **body, return_routed_experts=True, stream=True))
               if "sglext" in e]  # fmt: skip
    np.testing.assert_array_equal(whole(told["sglext"]["routed_experts"]), routes)


@pytest.mark.parametrize(("path", "body", "message"), [
    ("/generate", {"return_routed_experts": True, "routed_experts_start_len": 9},
     "routed_experts_start_len is 9, must be in [0, 8]"),
    ("/generate", {"return_routed_experts": True, "routed_experts_start_len": -1},
     "routed_experts_start_len is -1, must be an integer in [0, prompt_tokens]"),
    ("/generate", {"return_routed_experts": "yes"}, "return_routed_experts is 'yes'"),
    ("/v1/completions", {"routed_experts_prompt_start": 9}, "routed_experts_prompt_start is 9, must be in [0, 8]"),
    ("/v1/completions", {"routed_experts_prompt_start": 1, "routed_experts_start_len": 1},
     "routed_experts_prompt_start is 1, beside routed_experts_start_len"),
])  # fmt: skip
def test_what_cannot_be_returned_is_refused(server: Live, path: str, body: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"input_ids": PROMPT} if path == "/generate" else COMPLETION
    reply = post(server, path, **{**given, **body})
    assert reply.status_code == 400 and message in reply.json()["error"]["message"]
