"""LLM answers as a server does: the same model and options, the same bodies and arguments."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from live import Live

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM

OPTIONS: dict[str, Any] = {"dtype": "float32", "max_total_tokens": 8192, "num_threads": 1, "random_seed": 1}
GREEDY = {"temperature": 0, "max_tokens": 40}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
USER = [{"role": "user", "content": "What is the capital of Peru?"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
UNFINISHED = [*USER, {"role": "assistant", "content": "The capital of"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(**OPTIONS) as live:
        yield live


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(**OPTIONS) as made:
        yield made


def post(server: Live, path: str, **body: Any) -> Any:
    reply = requests.post(server.url + path, json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def without(keys: set[str], value: Any) -> Any:
    """Without what differs from call to call."""
    if isinstance(value, list):
        return [without(keys, item) for item in value]
    return {k: without(keys, v) for k, v in value.items() if k not in keys} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        (USER, {}),
        (WEATHER, {"tools": [TOOL]}),
        (WEATHER, {"tools": [TOOL], "tool_choice": "none"}),
        (USER, {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}),
        (UNFINISHED, {"continue_final_message": True}),
        (USER, {"chat_template_kwargs": {"enable_thinking": True}, "separate_reasoning": False}),
        (USER, {"reasoning_effort": "high"}),
    ],
    ids=["plain", "tools", "no tools", "forced", "unfinished", "with tags", "effort"],
)
def test_chats(server: Live, llm: LLM, messages: list[dict[str, Any]], fields: dict[str, Any]):
    whole = post(server, "/v1/chat/completions", messages=messages, **GREEDY, **fields)
    (theirs,) = whole["choices"]
    (ours,) = llm.chat(messages, {"temperature": 0, "max_new_tokens": 40}, **fields)
    keys = {"role", "content", "reasoning", "tool_calls"}
    assert without({"id"}, ours["message"]) == without(
        {"id"}, {k: v for k, v in theirs["message"].items() if k in keys}
    )
    assert ours["finish_reason"] == theirs["finish_reason"]
    meta, usage = ours["meta_info"], whole["usage"]
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert meta["reasoning_tokens"] == usage["completion_tokens_details"]["reasoning_tokens"]


def test_a_reply_s_message_goes_on_as_the_next_turn(llm: LLM):
    (called,) = llm.chat(WEATHER, {"temperature": 0}, tools=[TOOL])
    assert called["finish_reason"] == "tool_calls"
    result = {"role": "tool", "tool_call_id": called["message"]["tool_calls"][0]["id"], "content": "sunny, 21 degrees"}
    (answer,) = llm.chat([*WEATHER, called["message"], result], {"temperature": 0}, tools=[TOOL])
    assert answer["finish_reason"] == "stop" and answer["message"]["content"]


def test_several_chats_and_samples_come_chat_by_chat(llm: LLM):
    greedy = {"temperature": 0, "max_new_tokens": 40}
    alone = [llm.chat(chat, greedy)[0]["message"] for chat in (USER, WEATHER)]
    both = llm.chat([USER, WEATHER], [{**greedy, "n": 2}, greedy])
    assert [reply["message"] for reply in both] == [alone[0], alone[0], alone[1]]


def test_chats_give_the_log_probabilities_that_generate_gives(llm: LLM):
    (reply,) = llm.chat(USER, {"temperature": 0, "max_new_tokens": 5}, return_logprob=True, top_logprobs_num=2)
    meta = reply["meta_info"]
    assert len(meta["output_token_logprobs"]) == 5 and all(len(top) == 2 for top in meta["output_top_logprobs"])


def close(vector: list[float]) -> Any:
    """Texts that come to one step or to several are added up in another order: 8 units of the length's last place."""
    return pytest.approx(vector, abs=max(1e-5, math.hypot(*vector) * 2**-20))


@pytest.mark.parametrize("fields", [{}, {"pooling": "last", "normalize": False}, {"dimensions": 7}], ids=str)
def test_embeddings(server: Live, llm: LLM, fields: dict[str, Any]):
    texts = ["The capital of France is Paris.", "Grüße, 世界 🌍", "a"]
    theirs = [entry["embedding"] for entry in post(server, "/v1/embeddings", input=texts, **fields)["data"]]
    ours = llm.embed(texts, **fields)
    assert [len(vector) for vector in ours] == [len(vector) for vector in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one == close(other)
    as_ids = llm.embed([llm.tokenizer.encode(text) for text in texts], **fields)
    for one, other in zip(ours, as_ids, strict=True):
        assert one == close(other)


@pytest.mark.parametrize("apply_softmax", [False, True])
@pytest.mark.parametrize("item_first", [False, True])
def test_scores(server: Live, llm: LLM, apply_softmax: bool, item_first: bool):
    labels = [llm.tokenize(text, add_special_tokens=False)[0] for text in (" Paris", " Rome", " Tokyo")]
    asked: dict[str, Any] = {"query": "The capital of ", "items": ["France is", "Italy is"], "label_token_ids": labels}
    flags = {"apply_softmax": apply_softmax, "item_first": item_first}
    theirs = post(server, "/v1/score", **asked, **flags)["scores"]
    for one, other in zip(llm.score(**asked, **flags), theirs, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_generate(server: Live, llm: LLM):
    params = {"temperature": 0, "max_new_tokens": 12, "stop": ["."]}
    fields = {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0, "return_text_in_logprobs": True}
    server_only = {"id", "e2e_latency", "cached_tokens"}
    theirs = post(server, "/generate", text=["Once upon a time", "The sea"], sampling_params=params, **fields)
    ours = llm.generate(["Once upon a time", "The sea"], params, **fields)
    logprobs = {name for name in ours[0]["meta_info"] if "logprobs" in name}
    assert without(server_only | logprobs, ours) == without(server_only | logprobs, theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one["meta_info"].keys() == other["meta_info"].keys()
        for (a, *own), (b, *their) in zip(
            one["meta_info"]["output_token_logprobs"], other["meta_info"]["output_token_logprobs"], strict=True
        ):
            assert own == their and a == pytest.approx(b, abs=1e-4)


def test_text_and_ids(server: Live, llm: LLM):
    text = "Grüße, 世界 <|im_end|>"
    ids = post(server, "/v1/tokenize", prompt=text)["tokens"]
    assert llm.tokenize(text) == ids
    assert llm.detokenize(ids) == post(server, "/v1/detokenize", tokens=ids)["text"]


@pytest.mark.parametrize(
    ("path", "body", "method", "arguments"),
    [
        ("/v1/chat/completions", {"messages": []}, "chat", {"messages": []}),
        ("/v1/chat/completions", {"messages": [{"role": 1}]}, "chat", {"messages": [{"role": 1}]}),
        (
            "/v1/chat/completions",
            {"messages": USER, "tool_choice": "required"},
            "chat",
            {"messages": USER, "tool_choice": "required"},
        ),
        ("/v1/embeddings", {"input": ""}, "embed", {"input": ""}),
        ("/v1/embeddings", {"input": [1 << 30]}, "embed", {"input": [1 << 30]}),
        ("/v1/embeddings", {"input": "a", "pooling": "most"}, "embed", {"input": "a", "pooling": "most"}),
        ("/v1/embeddings", {"input": "a", "dimensions": 9999}, "embed", {"input": "a", "dimensions": 9999}),
        (
            "/v1/score",
            {"query": "a", "items": [[5]], "label_token_ids": [5]},
            "score",
            {"query": "a", "items": [[5]], "label_token_ids": [5]},
        ),
        (
            "/v1/score",
            {"query": "a", "items": "b", "label_token_ids": []},
            "score",
            {"query": "a", "items": "b", "label_token_ids": []},
        ),
        ("/v1/detokenize", {"tokens": [1 << 30]}, "detokenize", {"ids": [1 << 30]}),
    ],
    ids=str,
)
def test_refusals_say_the_same(
    server: Live, llm: LLM, path: str, body: dict[str, Any], method: str, arguments: dict[str, Any]
):
    reply = requests.post(server.url + path, json=body, timeout=60)
    with pytest.raises(ClientError) as caught:
        getattr(llm, method)(**arguments)
    assert reply.status_code == caught.value.status and reply.json()["error"]["message"] == str(caught.value)
