"""The language's calls on a real server and in process: the same answers, streams and leases."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from live import Live

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM

OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "max_total_tokens": 8192,
    "num_threads": 1,
    "random_seed": 1,
    "max_prefix_lease_s": 100,
}
ASKED = [{"role": "user", "content": ["What is the capital", " of Peru?"]}]
BEGUN = {"role": "assistant", "content": ["The capital"], "open": True}
SHORT = {"temperature": 0, "max_new_tokens": 12}
GENERATE: list[dict[str, Any]] = [
    {"prompt": ["The capital of France is"]},
    {"prompt": [*ASKED, BEGUN]},
    {"prompt": [*ASKED, BEGUN], "separate_reasoning": True, "reasoning_parser": "qwen3"},
    {"prompt": [*ASKED, {"role": "assistant", "content": ["<think>"], "open": True}], "separate_reasoning": True},
    {"prompt": ["Note. ", *ASKED, " (Answer briefly.) ", {"role": "assistant", "open": True}]},
    {"prompt": [{"role": "user", "content": ["I would like to"], "open": True}]},
    {"prompt": ["A number:"], "sampling_params": {**SHORT, "regex": " [0-9]{3}"}},
    {"prompt": ["Once"], "sampling_params": {**SHORT, "n": 3, "temperature": 1.0, "sampling_seed": 5}},
    {"prompt": ["Once"], "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2},
    {"prompt": ["Once"], "return_logprob": True, "return_text_in_logprobs": True, "return_prompt_token_ids": True},
    {"prompt": ["Nothing"], "sampling_params": {"max_new_tokens": 0}},
]
SELECT: list[dict[str, Any]] = [
    {"prompt": ["The capital of France is"], "choices": [" Paris", " London", " Rome"]},
    {"prompt": [*ASKED, BEGUN], "choices": [" of Peru is Lima.", " is", " is Lima"], "method": "exact_sequence"},
    {"prompt": ["It is tr"], "choices": ["ue", "uly", "avel"], "method": "greedy_token_selection"},
    {"prompt": ["It is"], "choices": [" so", " not"], "method": "unconditional_likelihood_normalized"},
    {"prompt": ["It is"], "choices": [" so", " not"], "temperature": 2.0, "sampling_seed": 3, "token_healing": False},
]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("generate", {"prompt": [{"role": "nobody", "content": ["a"]}]}),
    ("generate", {"prompt": ["a" * 1_000_000]}),
    ("generate", {"prompt": ["a"], "prefix_lease_s": 101.0}),
    ("generate", {"prompt": ["a"], "sampling_params": {"regex": "("}}),
    ("generate", {"prompt": [""]}),
    ("generate", {"prompt": ["a"], "foo": 1}),
    ("generate", {"prompt": ["a", {"contexts": ["b", ""]}, "c"]}),
    ("select", {"prompt": ["a"], "choices": ["b", "x " * 100_000]}),
    ("select", {"prompt": ["a"], "choices": ["b"], "method": 5}),
    ("render", {"prompt": []}),
    ("render", {"prompt": [5]}),
    ("end", {"programs": []}),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(check_invariants=True, **OPTIONS) as live:
        yield live
        state = live.state()
        assert state["running_requests"] == state["leased_tokens"] == state["owned_tokens"] == 0


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(check_invariants=True, **OPTIONS) as made:
        yield made
        assert made.state()["running_requests"] == 0


def post(server: Live, name: str, body: dict[str, Any], status: int = 200) -> Any:
    reply = requests.post(f"{server.url}/language/{name}", json=body, timeout=60)
    assert reply.status_code == status, reply.text
    return reply.json()


def events(server: Live, body: dict[str, Any]) -> list[Any]:
    reply = requests.post(f"{server.url}/language/generate", json={**body, "stream": True}, timeout=60)
    *found, done = reply.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in found]


def plain(value: Any) -> Any:
    """As JSON has it, without what differs from call to call."""
    differs = {"id", "e2e_latency", "cached_tokens"}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if name not in differs}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


def with_params(body: dict[str, Any]) -> dict[str, Any]:
    return {"sampling_params": SHORT, **body}


async def streamed(llm: LLM, body: dict[str, Any]) -> list[Any]:
    return [event async for event in llm.language.stream(body)]


@pytest.mark.parametrize("body", GENERATE)
def test_generate_answers_the_same_over_http_and_in_process(server: Live, llm: LLM, body: dict[str, Any]) -> None:
    body = with_params(body)
    ours = asyncio.run(llm.language.generate(body))
    assert plain(ours) == plain(post(server, "generate", body))
    assert plain(llm.language.wait(llm.language.generate(body))) == plain(ours)


@pytest.mark.parametrize("body", SELECT)
def test_select_answers_the_same_over_http_and_in_process(server: Live, llm: LLM, body: dict[str, Any]) -> None:
    assert plain(asyncio.run(llm.language.select(body))) == plain(post(server, "select", body))


@pytest.mark.parametrize("body", GENERATE)
def test_render_answers_the_same_and_tells_what_is_generated_from(server: Live, llm: LLM, body: dict[str, Any]) -> None:
    asked = {"prompt": body["prompt"]}
    shown = asyncio.run(llm.language.render(asked))
    assert shown == post(server, "render", asked)
    ids = llm.tokenize(shown["text"], add_special_tokens=False)
    assert shown["num_tokens"] == len(ids)
    told = post(server, "generate", {**asked, "sampling_params": SHORT, "return_prompt_token_ids": True})
    assert told["prompt_token_ids"] == ids[: told["meta_info"]["prompt_tokens"]]


@pytest.mark.parametrize("name_and_body", REFUSED)
def test_refusals_are_the_same(server: Live, llm: LLM, name_and_body: tuple[str, dict[str, Any]]) -> None:
    name, body = name_and_body
    message = post(server, name, body, 400)["error"]["message"]
    with pytest.raises(ClientError) as caught:
        llm.language.wait(getattr(llm.language, name)(body))
    assert str(caught.value) == message
    if name == "generate":
        with pytest.raises(ClientError) as caught:
            asyncio.run(streamed(llm, body))
        assert str(caught.value) == message


@pytest.mark.parametrize("body", GENERATE)
def test_events_add_up_to_the_whole_reply(server: Live, llm: LLM, body: dict[str, Any]) -> None:
    body = with_params(body)
    whole = post(server, "generate", body)
    whole = whole if isinstance(whole, list) else [whole]
    for found in (events(server, body), asyncio.run(streamed(llm, body))):
        assert len(found) >= len(whole)
        for reply in whole:
            own = [event for event in found if event.get("index") == reply.get("index")]
            assert "".join(event["text"] for event in own) == reply["text"]
            assert [token for event in own for token in event["output_ids"]] == reply["output_ids"]
            if "reasoning" in reply:
                assert "".join(event["reasoning"] or "" for event in own) == (reply["reasoning"] or "")
            for name in ("input_token_logprobs", "output_token_logprobs", "output_top_logprobs"):
                told = [each for event in own for each in event["meta_info"].get(name, [])]
                assert plain(told) == plain(reply["meta_info"].get(name, []))
            last = own[-1]["meta_info"]
            assert last["finish_reason"] == reply["meta_info"]["finish_reason"]
            assert all(event["meta_info"]["finish_reason"] is None for event in own[:-1])


def test_a_raw_prompt_is_generated_from_as_generate_does(server: Live) -> None:
    text = "The capital of France is"
    native = server.generate(text=text, sampling_params=SHORT).json()
    body = {"prompt": [text[:7], text[7:]], "sampling_params": SHORT, "token_healing": False}
    assert plain(post(server, "generate", body)) == plain(native)


def test_a_prompts_end_is_healed_where_a_client_wrote_it(server: Live) -> None:
    text = "The capital of Fran"
    healed = server.generate(text=text, sampling_params=SHORT, token_healing=True).json()
    ours = post(server, "generate", {"prompt": [text], "sampling_params": SHORT})
    assert plain(ours) == plain(healed) and ours["text"].startswith("ce")
    closed = {"prompt": [{"role": "user", "content": ["Where is Fran"]}], "sampling_params": SHORT}
    opened = {**closed, "prompt": [*closed["prompt"], {"role": "assistant", "content": ["It is in Eur"], "open": True}]}
    for body, differs in ((closed, False), (opened, True)):
        unsaid, off = (post(server, "generate", {**body, "token_healing": each}) for each in (None, False))
        assert (unsaid["meta_info"]["prompt_tokens"] < off["meta_info"]["prompt_tokens"]) == differs


def test_an_open_turn_is_generated_from_as_a_chat_is(server: Live) -> None:
    body = {"prompt": [{"role": "user", "content": ["Hi"]}, {"role": "assistant", "open": True}]}
    ours = post(server, "generate", with_params(body))
    chat = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 12}
    theirs = requests.post(server.url + "/v1/chat/completions", json=chat, timeout=60).json()
    assert ours["text"] == theirs["choices"][0]["message"]["content"]
    assert ours["meta_info"]["prompt_tokens"] == theirs["usage"]["prompt_tokens"]


def test_a_longer_prompt_finds_what_the_shorter_one_left(server: Live) -> None:
    turns = [{"role": "user", "content": ["Tell me of the town that you were made in, and of its river."]}]
    first = post(server, "generate", with_params({"prompt": [*turns, {"role": "assistant", "open": True}]}))
    said = {"role": "assistant", "content": [first["text"]]}
    more = [*turns, said, {"role": "user", "content": ["And?"]}, {"role": "assistant", "open": True}]
    second = post(server, "generate", with_params({"prompt": more}))
    assert second["meta_info"]["cached_tokens"] >= first["meta_info"]["prompt_tokens"]


def leases(server: Live) -> tuple[int, int]:
    state = server.state()
    return state["prefix_leases"], state["prefix_lease_tokens"]


def test_a_prefix_is_leased_without_an_output_and_given_back(server: Live) -> None:
    body = {"prompt": [*ASKED, "Think of it."], "sampling_params": {"max_new_tokens": 0}, "token_healing": False}
    taken = post(server, "generate", {**body, "prefix_lease_s": 50.0})
    assert taken["output_ids"] == [] and taken["text"] == ""
    assert leases(server) == (1, taken["meta_info"]["prompt_tokens"])
    computed = server.state()["prefill_tokens"]
    post(server, "generate", {**body, "prefix_lease_s": 0.0})
    assert leases(server) == (0, 0) and server.state()["prefill_tokens"] == computed


LONG = {"prompt": ["On and on"], "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}


def tokens_until_idle(llm: LLM) -> int:
    """Of all requests so far, once none runs."""
    while (state := llm.state())["running_requests"]:  # which is asked between steps
        pass
    num: int = state["generated_tokens"]
    return num


def test_leaving_a_stream_aborts_it(llm: LLM) -> None:
    async def leave() -> None:
        stream = llm.language.stream(LONG)
        assert (await anext(stream))["output_ids"]
        await stream.aclose()

    before = tokens_until_idle(llm)
    asyncio.run(leave())
    assert 0 < tokens_until_idle(llm) - before < 3000


@pytest.mark.parametrize("streams", [False, True])
def test_a_call_that_is_cancelled_aborts_its_request(llm: LLM, streams: bool) -> None:
    async def cancel() -> None:
        call = streamed(llm, LONG) if streams else llm.language.generate(LONG)
        task = asyncio.create_task(call)
        while not (await asyncio.to_thread(llm.state))["running_requests"]:
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = tokens_until_idle(llm)
    asyncio.run(cancel())
    assert tokens_until_idle(llm) - before < 3000


def test_calls_from_several_loops_and_threads_run_at_once(llm: LLM) -> None:
    body = {"prompt": ["Two and two are"], "choices": [" four", " five"]}
    alone = plain(llm.language.wait(llm.language.select(body)))

    async def many() -> list[Any]:
        return await asyncio.gather(*(llm.language.select(body) for _ in range(8)))

    assert [plain(reply) for reply in asyncio.run(many())] == [alone] * 8


def test_a_programs_values_may_be_tuples(llm: LLM) -> None:
    body: dict[str, Any] = {"prompt": ("a", {"role": "user", "content": ("b",)}), "choices": ("c", "d")}
    assert llm.language.wait(llm.language.select(body))["choice"] in ("c", "d")
    nested: list[Any] = []
    nested.append(nested)
    with pytest.raises(ClientError, match="is nested deeper than"):
        llm.language.wait(llm.language.render({"prompt": nested}))
