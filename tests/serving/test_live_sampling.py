"""Penalties, log-probabilities, processors, embeddings and cache keys through a real server."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests
from live import Live
from safetensors.torch import load_file

from ramet.runtime.config import BUNDLED_MODEL

PROMPT = "The capital of France is"
GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    options = {"max_total_tokens": 20000, "check_invariants": True, "dtype": "float32", "served_model_name": "small"}
    with Live(enable_custom_logit_processor=True, **options) as live:
        yield live


@pytest.fixture(scope="module")
def client(server: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def chunks_of(server: Live, **body: Any) -> list[dict[str, Any]]:
    response = requests.post(server.url + "/generate", json={**body, "stream": True}, stream=True, timeout=60)
    data = [line.removeprefix(b"data: ") for line in response.iter_lines() if line]
    assert data[-1] == b"[DONE]"
    return [json.loads(line) for line in data[:-1]]


def test_a_stream_has_the_same_log_probabilities(server: Live):
    body = dict(
        text=PROMPT, sampling_params=GREEDY, return_logprob=True, logprob_start_len=0, top_logprobs_num=3,
        token_ids_logprob=[5, 6], return_text_in_logprobs=True,
    )  # fmt: skip
    whole = server.generate(**body).json()["meta_info"]
    last = chunks_of(server, **body)[-1]["meta_info"]
    names = [f"{part}_{kind}" for part in ("input", "output") for kind in (
        "token_logprobs", "top_logprobs", "token_ids_logprobs",
    )]  # fmt: skip
    for name in names:
        assert whole[name] == last[name] and len(whole[name]) in (whole["prompt_tokens"], 12)
    assert "".join(text for _, _, text in whole["input_token_logprobs"]) == PROMPT
    assert whole["output_top_logprobs"][0][0] == whole["output_token_logprobs"][0]


def test_every_item_of_a_batch_may_ask_for_its_own(server: Live):
    replies = server.generate(
        text=["a", "b c", "d"], sampling_params=GREEDY, return_logprob=[True, False, True],
        logprob_start_len=[-1, 0, 0], top_logprobs_num=[0, 0, 2],
    ).json()  # fmt: skip
    first, second, third = (reply["meta_info"] for reply in replies)
    assert first["input_token_logprobs"] == [] and len(first["output_token_logprobs"]) == 12
    assert not any("logprobs" in name for name in second)
    assert third["input_token_logprobs"][0][0] is None and len(third["output_top_logprobs"][0]) == 2


def test_penalties_stop_a_loop_that_greedy_decoding_falls_into(server: Live):
    params = {**GREEDY, "max_new_tokens": 60}
    text = "Write the word: lamp lamp lamp lamp lamp lamp lamp lamp lamp lamp lamp"
    plain = server.generate(text=text, sampling_params=params).json()["output_ids"]
    lowered = server.generate(text=text, sampling_params={**params, "frequency_penalty": 2.0}).json()["output_ids"]
    assert len(set(lowered)) > len(set(plain))


def test_logit_bias_forces_and_forbids(server: Live):
    params = {**GREEDY, "logit_bias": {"77": 100}}
    assert set(server.generate(text=PROMPT, sampling_params=params).json()["output_ids"]) == {77}
    first = server.generate(text=PROMPT, sampling_params=GREEDY).json()["output_ids"][0]
    params = {**GREEDY, "logit_bias": {str(first): -100}}
    assert first not in server.generate(text=PROMPT, sampling_params=params).json()["output_ids"]


@pytest.mark.parametrize(("name", "params", "expected"), [
    ("force_tokens", {"token_ids": [77, 78, 79]}, lambda ids: ids[:3] == [77, 78, 79]),
    ("allow_tokens", {"token_ids": [50, 60]}, lambda ids: set(ids) <= {50, 60}),
    ("ban_tokens", {"token_ids": list(range(2000))}, lambda ids: min(ids) >= 2000),
    ("no_repeat_ngram", {"ngram_size": 1}, lambda ids: len(set(ids)) == len(ids)),
    ("temperature_by_position", {"temperatures": [[0, 0.5]]}, lambda ids: len(ids) == 12),
    ("sequence_automaton", {"transitions": [{"50": 1}, {"60": 0, "70": 2}, {}]},
     lambda ids: ids[0] == 50 and ids[1] in (60, 70)),
])  # fmt: skip
def test_processors_do_what_they_say(server: Live, name: str, params: dict[str, Any], expected: Any):
    sampling = {**GREEDY, "custom_params": params}
    reply = server.generate(text=PROMPT, sampling_params=sampling, custom_logit_processor=name).json()
    assert expected(reply["output_ids"]), reply


@pytest.mark.parametrize(("name", "params"), [
    ("ban_tokens", lambda forced: {"token_ids": forced[2:3]}),
    ("allow_tokens", lambda forced: {"token_ids": forced[:2]}),
    ("no_repeat_ngram", lambda forced: {"ngram_size": 1}),
])  # fmt: skip
def test_a_processor_sees_each_token_that_a_constraint_forces(server: Live, name: str, params: Any):
    asked = {**GREEDY, "regex": "(x|y)abcdabcd"}
    forced = server.generate(text=PROMPT, sampling_params=asked).json()["output_ids"]
    assert len(forced) > 4
    asked["custom_params"] = params(forced)
    reply = server.generate(text=PROMPT, sampling_params=asked, custom_logit_processor=name)
    assert reply.status_code == 400 and "the constraint forbid" in reply.json()["error"]["message"], reply.text


@pytest.mark.parametrize(("name", "params", "piece"), [
    ("no_such_one", {}, "force_tokens"),
    ("ban_tokens", {"token_ids": [10**6]}, "token_ids"),
    ("ban_tokens", {"token_ids": list(range(4096))}, "whole vocabulary"),
    ("no_repeat_ngram", {"ngram_size": 0}, "[1, 64]"),
    ("sequence_automaton", {"transitions": [{"5": 9}]}, "leads to 9"),
    ("temperature_by_position", {"temperatures": [[0, 0]]}, "0.01"),
])  # fmt: skip
def test_a_wrong_processor_or_parameter_is_a_400_that_says_so(server: Live, name: str, params: Any, piece: str):
    sampling = {**GREEDY, "custom_params": params}
    reply = server.generate(text=PROMPT, sampling_params=sampling, custom_logit_processor=name)
    assert reply.status_code == 400 and piece in reply.json()["error"]["message"]


def test_a_processor_that_leaves_nothing_ends_its_own_request_alone(server: Live):
    bodies = [{**GREEDY, "custom_params": {"token_ids": [50]}, "logit_bias": {}}, GREEDY]
    # everything but 50 is banned by the one, and 50 by nobody: the second request shares its steps
    replies = server.generate(
        text=[PROMPT, PROMPT], sampling_params=bodies, custom_logit_processor=["allow_tokens", None]
    ).json()
    assert set(replies[0]["output_ids"]) == {50}
    assert replies[1]["output_ids"] == server.generate(text=PROMPT, sampling_params=GREEDY).json()["output_ids"]


def test_embeddings_of_a_prompt_give_what_its_ids_give(server: Live):
    table = load_file(BUNDLED_MODEL / "model.safetensors")["model.embed_tokens.weight"].float()
    ids = [500, 600, 700, 800, 900]
    expected = server.generate(input_ids=ids, sampling_params=GREEDY).json()
    for _ in range(2):  # cold, then from the cache
        found = server.generate(input_embeds=table[ids].tolist(), sampling_params=GREEDY).json()
        assert found["output_ids"] == expected["output_ids"] and found["meta_info"]["prompt_tokens"] == 5
    assert found["meta_info"]["cached_tokens"] == 4
    other = server.generate(input_embeds=table[ids[::-1]].tolist(), sampling_params=GREEDY).json()
    assert other["meta_info"]["cached_tokens"] == 0


def test_a_salt_or_key_shares_no_cache_with_another(server: Live):
    text = "A prompt that nobody has sent before, long enough to be cached."
    for fields in (
        {},
        {"cache_salt": "a"},
        {"cache_salt": "b"},
        {"extra_key": "a"},
        {"cache_salt": "a", "extra_key": "a"},
    ):
        first, second = (server.generate(text=text, sampling_params=GREEDY, **fields).json() for _ in range(2))
        assert first["meta_info"]["cached_tokens"] == 0 < second["meta_info"]["cached_tokens"]
        assert first["output_ids"] == second["output_ids"]


def test_completions_return_log_probabilities_and_score_an_echoed_prompt(server: Live, client: openai.OpenAI):
    asked: dict[str, Any] = dict(model="small", prompt=PROMPT, temperature=0, logprobs=2)
    choice = client.completions.create(**asked, max_tokens=6).choices[0]
    assert choice.logprobs is not None and choice.logprobs.tokens is not None
    assert "".join(choice.logprobs.tokens).startswith(choice.text)
    assert choice.logprobs.text_offset[0] == 0 and all(len(top) in (2, 3) for top in choice.logprobs.top_logprobs)
    scored = client.completions.create(**asked, max_tokens=0, echo=True).choices[0]
    assert scored.text == PROMPT == "".join(scored.logprobs.tokens)
    assert scored.logprobs.token_logprobs[0] is None and scored.logprobs.top_logprobs[0] is None
    assert all(value < 0 for value in scored.logprobs.token_logprobs[1:])
    native = server.generate(
        text=PROMPT, sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0
    ).json()["meta_info"]["input_token_logprobs"]
    assert scored.logprobs.token_logprobs == [value for value, _, _ in native]


@pytest.mark.parametrize("extra", [{}, {"skip_special_tokens": False}, {"truncate_prompt_tokens": 4}])
def test_offsets_of_an_echoed_prompt_index_the_text(client: openai.OpenAI, extra: dict[str, Any]):
    prompt = "Hello<|im_end|> there<|im_start|>user\nWhat is 1 + 2?"
    choice = client.completions.create(
        model="small", prompt=prompt, echo=True, logprobs=1, max_tokens=2, temperature=0, extra_body=extra
    ).choices[0]
    logprobs = choice.logprobs
    assert logprobs is not None and logprobs.tokens and logprobs.text_offset
    assert choice.text.startswith(prompt) or "truncate_prompt_tokens" in extra
    prompt_tokens = list(zip(logprobs.tokens, logprobs.text_offset, strict=True))[:-2]
    assert len(prompt_tokens) >= 4
    for token, offset in prompt_tokens:
        assert choice.text.startswith(token, offset), (token, offset)


@pytest.mark.parametrize("echo", [False, True])
def test_streamed_completions_return_the_same(client: openai.OpenAI, echo: bool):
    asked: dict[str, Any] = dict(
        model="small",
        prompt=PROMPT,
        temperature=0,
        logprobs=2,
        max_tokens=8,
        echo=echo,
        extra_body={"ignore_eos": True},
    )
    whole = client.completions.create(**asked).choices[0]
    parts = [chunk.choices[0] for chunk in client.completions.create(**asked, stream=True)]
    assert "".join(part.text for part in parts) == whole.text
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [item for part in parts for item in getattr(part.logprobs, name)] == getattr(whole.logprobs, name)


def test_hidden_states_come_with_the_last_chunk(server: Live):
    body = dict(text=PROMPT, sampling_params=GREEDY, return_hidden_states=True)
    *chunks, last = chunks_of(server, **body)
    assert not any("hidden_states" in chunk["meta_info"] for chunk in chunks)
    matrix, *rows = last["meta_info"]["hidden_states"]
    assert len(matrix) == last["meta_info"]["prompt_tokens"] and len(rows) == 11 and {len(row) for row in rows} == {256}


@pytest.mark.parametrize("logprobs", [None, 1])
def test_a_completion_returns_hidden_states_with_its_end(client: openai.OpenAI, logprobs: int | None):
    asked: dict[str, Any] = dict(
        model="small", prompt=PROMPT, max_tokens=6, temperature=0, logprobs=logprobs,
        extra_body={"ignore_eos": True, "return_hidden_states": "last"},
    )  # fmt: skip
    whole = client.completions.create(**asked).choices[0]
    *parts, last = (chunk.choices[0] for chunk in client.completions.create(**asked, stream=True))
    assert len(whole.hidden_states) == 256 and last.hidden_states == pytest.approx(whole.hidden_states, abs=1e-4)  # type: ignore[attr-defined]
    assert not any(hasattr(part, "hidden_states") for part in parts)


def test_what_would_be_too_large_a_reply_is_refused(server: Live):
    every = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 256}
    reply = server.generate(text="a " * 3000, sampling_params=GREEDY, token_ids_logprob=list(range(1024)), **every)
    assert reply.status_code == 400 and "3001 prompt tokens" in reply.json()["error"]["message"]
    long = {"max_new_tokens": 10**6, "ignore_eos": True}
    reply = server.generate(text="a", sampling_params=long, token_ids_logprob=list(range(1024)), **every)
    assert reply.status_code == 400 and "lower max_new_tokens" in reply.json()["error"]["message"]
    reply = server.generate(text="a", sampling_params=GREEDY, return_logprob=True, logprob_start_len=9)
    assert reply.status_code == 400 and "logprob_start_len" in reply.json()["error"]["message"]
    reply = server.generate(text="a", sampling_params=GREEDY, return_logprob=True, token_ids_logprob=[4096])
    assert reply.status_code == 400 and "token_ids_logprob" in reply.json()["error"]["message"]


def test_a_request_that_forbids_every_token_gets_an_error(server: Live):
    params = {"temperature": 0, "max_new_tokens": 3, "min_new_tokens": 3, "custom_params": {"token_ids": [0]}}
    reply = server.generate(text=PROMPT, sampling_params=params, custom_logit_processor="allow_tokens")
    assert reply.status_code == 400 and "no token is left" in reply.json()["error"]["message"]


@pytest.mark.parametrize("prompt", ["a \U0001f642 b c", "na\u00efve caf\u00e9 \U0001f642", PROMPT])
def test_text_offsets_count_characters_also_where_tokens_split_them(client: openai.OpenAI, prompt: str):
    asked: dict[str, Any] = dict(model="small", prompt=prompt, temperature=0, logprobs=0, echo=True)
    choice = client.completions.create(**asked, max_tokens=0).choices[0]
    tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
    assert offsets == sorted(offsets) and max(offsets) < len(prompt)
    for token, start in zip(tokens, offsets, strict=True):
        assert "\ufffd" in token or prompt[start:].startswith(token)


def test_samples_count_against_the_size_of_a_reply(server: Live):
    params = {"max_new_tokens": 4000, "n": 8, "ignore_eos": True}
    reply = server.generate(text="a", sampling_params=params, return_logprob=True, top_logprobs_num=256)
    assert reply.status_code == 400 and "n = 8 samples" in reply.json()["error"]["message"]


def test_the_model_says_how_long_an_embedding_is(server: Live):
    info = requests.get(server.url + "/get_model_info", timeout=10).json()
    table = load_file(BUNDLED_MODEL / "model.safetensors")["model.embed_tokens.weight"]
    assert info["hidden_size"] == table.shape[1]


def test_events_of_what_is_new_have_every_log_probability_once():
    body = dict(text=PROMPT, sampling_params=GREEDY, return_logprob=True, logprob_start_len=0, top_logprobs_num=2)
    names = [f"{part}_{kind}" for part in ("input", "output") for kind in ("token_logprobs", "top_logprobs")]
    with Live(max_total_tokens=4000, incremental_streaming_output=True) as live:
        whole = live.generate(**body).json()["meta_info"]
        events = chunks_of(live, **body)
        assert len(events) > 1
        for name in names:
            assert [item for event in events for item in event["meta_info"][name]] == whole[name]


def test_text_offsets_hold_after_a_character_that_never_ended(client: openai.OpenAI):
    bias = {str(token): 20 for token in range(100, 260)}  # single bytes, most of them no characters
    choice = client.completions.create(
        model="small", prompt="x", temperature=1, seed=31, max_tokens=20, logprobs=0, logit_bias=bias
    ).choices[0]
    assert "\ufffd" in choice.text
    for token, start in zip(choice.logprobs.tokens, choice.logprobs.text_offset, strict=True):
        assert "\ufffd" in token or choice.text[start:].startswith(token)


def check_prompt_places(shown: list[Any], native: dict[str, Any], num_top: int) -> None:
    """vLLM's shape of what /generate says of the same prompt."""
    assert shown[0] is None and len(shown) == len(native["input_token_logprobs"])
    for place, own, top in zip(
        shown[1:], native["input_token_logprobs"][1:], native["input_top_logprobs"][1:], strict=True
    ):
        best = {str(token): {"logprob": value, "rank": rank, "decoded_token": text}
                for rank, (value, token, text) in enumerate(top[:num_top], 1)}  # fmt: skip
        value, token, text = own
        assert place == {str(token): {"logprob": value, "rank": None, "decoded_token": text}} | best


def test_prompt_logprobs_have_vllm_s_shape(server: Live):
    """Both ends are asked for as many samples: their prompts are computed in one step, each from its first token, and
    products of matrices differ in their last bits with the number of rows in them and the place among these.
    """
    asked = dict(return_logprob=True, logprob_start_len=0, top_logprobs_num=3, return_text_in_logprobs=True)
    samples = server.generate(text=PROMPT, sampling_params={**GREEDY, "n": 2}, **asked).json()
    body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "prompt_logprobs": 2, "logprobs": 3, "n": 2}
    reply = requests.post(server.url + "/v1/completions", json=body, timeout=60).json()
    for choice, sample in zip(reply["choices"], samples, strict=True):
        check_prompt_places(choice["prompt_logprobs"], sample["meta_info"], 2)
        assert len(choice["logprobs"]["tokens"]) == 3 and all(
            len(top) in (3, 4) for top in choice["logprobs"]["top_logprobs"]
        )
    native = server.generate(text=PROMPT, sampling_params=GREEDY, **asked).json()["meta_info"]
    body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "prompt_logprobs": 3}
    (choice,) = requests.post(server.url + "/v1/completions", json=body, timeout=60).json()["choices"]
    check_prompt_places(choice["prompt_logprobs"], native, 3)
    assert choice["logprobs"] is None


def test_a_chat_s_prompt_logprobs_stand_beside_its_ids(server: Live):
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3, "temperature": 0, "prompt_logprobs": 1,
            "return_token_ids": True, "logprobs": True}  # fmt: skip
    reply = requests.post(server.url + "/v1/chat/completions", json=body, timeout=60).json()
    ids = reply["prompt_token_ids"]
    native = server.generate(
        input_ids=ids, sampling_params=GREEDY, return_logprob=True, logprob_start_len=0, top_logprobs_num=1,
        return_text_in_logprobs=True,
    ).json()  # fmt: skip
    check_prompt_places(reply["prompt_logprobs"], native["meta_info"], 1)
    (choice,) = reply["choices"]
    assert choice["token_ids"] == native["output_ids"][: len(choice["token_ids"])]
    assert [place["top_logprobs"] for place in choice["logprobs"]["content"]] == [[]] * len(choice["token_ids"])


def test_a_prompt_that_is_cut_is_its_last_tokens(server: Live):
    text = "one two three four five " * 3000  # longer than the context
    ids = requests.post(server.url + "/tokenize", json={"prompt": text}, timeout=60).json()["tokens"]
    body = {"prompt": text, "max_tokens": 6, "temperature": 0, "return_token_ids": True}
    assert requests.post(server.url + "/v1/completions", json=body, timeout=60).status_code == 400
    cut = requests.post(server.url + "/v1/completions", json={**body, "truncate_prompt_tokens": 9}, timeout=60).json()
    (choice,) = cut["choices"]
    assert choice["prompt_token_ids"] == ids[-9:] and cut["usage"]["prompt_tokens"] == 9
    native = server.generate(input_ids=ids[-9:], sampling_params={"temperature": 0, "max_new_tokens": 6}).json()
    assert choice["token_ids"] == native["output_ids"]
    chat = {"messages": [{"role": "user", "content": text}], "max_tokens": 2, "truncate_prompt_tokens": 7}
    reply = requests.post(server.url + "/v1/chat/completions", json=chat, timeout=60).json()
    assert reply["usage"]["prompt_tokens"] == 7


def test_generate_s_stop_ids_beyond_the_vocabulary_change_nothing(server: Live):
    plain = server.generate(text=PROMPT, sampling_params=GREEDY).json()
    huge = server.generate(text=PROMPT, sampling_params={**GREEDY, "stop_token_ids": [2**40, 10**6]}).json()
    assert huge["output_ids"] == plain["output_ids"]
    assert "of a request's stop_token_ids are beyond the vocabulary" in server.output()
