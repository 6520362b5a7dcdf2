"""token_healing through a real server: replies, streams, lists, the option, and what is refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from live import Live

from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.llm import LLM
from ramet.runtime.text.tokenizer import Tokenizer

GREEDY = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
TEXTS = ["The capital of Franc", "Water freezes at zero deg", "The cat sat on the m", "Once upon a ti", "é"]
OPTIONS: dict[str, Any] = {"max_total_tokens": 20000, "dtype": "float32", "device": "cpu"}


@pytest.fixture(scope="module", params=["off", "on"])
def server(request: pytest.FixtureRequest) -> Iterator[Live]:
    with Live(overlap=request.param, check_invariants=True, **OPTIONS) as live:
        yield live


def test_the_server_says_what_llm_says(server: Live) -> None:
    with LLM(**OPTIONS) as llm:
        expected = llm.generate(TEXTS, GREEDY, token_healing=True)
    replies = server.generate(text=TEXTS, sampling_params=GREEDY, token_healing=True).json()
    tokenizer = Tokenizer.from_folder(BUNDLED_MODEL)
    for text, reply, other in zip(TEXTS, replies, expected, strict=True):
        assert reply["text"] == other["text"] and reply["output_ids"] == other["output_ids"]
        kept = tokenizer.encode(text)[: reply["meta_info"]["prompt_tokens"]]
        assert tokenizer.decode(kept + reply["output_ids"]) == text + reply["text"]
        assert reply["meta_info"]["completion_tokens"] == 8
    assert any(len(tokenizer.encode(text)) > reply["meta_info"]["prompt_tokens"] for text, reply in zip(TEXTS, replies))


def test_a_list_says_it_of_each_prompt(server: Live) -> None:
    some = server.generate(text=TEXTS, sampling_params=GREEDY, token_healing=[True, False, None, True, False]).json()
    all_, none = (
        server.generate(text=TEXTS, sampling_params=GREEDY, token_healing=each).json() for each in (True, None)
    )
    for i, healed in enumerate((True, False, False, True, False)):
        assert some[i]["output_ids"] == (all_ if healed else none)[i]["output_ids"]


def test_a_stream_never_shows_the_prompts_end(server: Live) -> None:
    for text in TEXTS:
        body = {"text": text, "sampling_params": GREEDY, "token_healing": True}
        whole = server.generate(**body).json()
        response = requests.post(server.url + "/generate", json={**body, "stream": True}, stream=True, timeout=60)
        data = [line.removeprefix(b"data: ") for line in response.iter_lines() if line]
        texts = [json.loads(line)["text"] for line in data[:-1]]
        assert texts[-1] == whole["text"] and all(whole["text"].startswith(each) for each in texts)


def test_a_constraint_begins_after_the_prompt(server: Live) -> None:
    params = {"temperature": 0, "max_new_tokens": 20, "regex": "ce is [A-Z][a-z]{3,8}"}
    reply = server.generate(text="The capital of Fran", sampling_params=params, token_healing=True).json()
    assert reply["text"].startswith("ce is ") and reply["meta_info"]["finish_reason"]["type"] == "stop"


@pytest.mark.parametrize("body, pieces", [
    ({"text": "a b", "token_healing": "yes"}, ["token_healing", "must be"]),
    ({"text": "a b", "token_healing": 1}, ["token_healing", "must be"]),
    ({"text": "a b", "token_healing": [True]}, ["token_healing"]),
    ({"text": ["a b", "c"], "token_healing": [True]}, ["token_healing", "1"]),
    ({"text": ["a b", "c"], "token_healing": [True, 3]}, ["token_healing[1]", "must be"]),
    ({"input_embeds": [[0.0] * 8], "token_healing": True}, ["input_embeds"]),
])  # fmt: skip
def test_what_cannot_be_healed_is_refused(server: Live, body: dict[str, Any], pieces: list[str]) -> None:
    response = server.generate(**body)
    message = response.json()["error"]["message"]
    assert response.status_code == 400 and all(piece in message for piece in pieces), message


def test_the_option_heals_texts_of_generate_alone() -> None:
    with Live(token_healing="on", **OPTIONS) as live, LLM(**OPTIONS) as llm:
        healed, plain = (llm.generate(TEXTS, GREEDY, token_healing=each) for each in (True, False))
        assert [r["output_ids"] for r in healed] != [r["output_ids"] for r in plain]
        replies = live.generate(text=TEXTS, sampling_params=GREEDY).json()
        assert [r["output_ids"] for r in replies] == [r["output_ids"] for r in healed]
        body = {"model": "ramet-bundled", "prompt": TEXTS[0], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        reply = requests.post(live.url + "/v1/completions", json=body, timeout=60).json()
        assert reply["choices"][0]["text"] == plain[0]["text"]
        assert (
            live.generate(text=TEXTS, sampling_params=GREEDY, token_healing=False).json()[0]["text"] == plain[0]["text"]
        )
