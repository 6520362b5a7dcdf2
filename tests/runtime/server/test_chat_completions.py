"""/v1/chat/completions: what the engine is asked, how outputs become messages and chunks, what is refused."""

import re
from typing import Any

import openai
import orjson
import pytest

from ramet.ipc.messages import Generate, Render, unpack_ids
from ramet.ipc.params import MAX_NEW_TOKENS, SamplingParams
from ramet.runtime.intake.chat import Style
from tests.fakes.engine import CACHED, EOS, cut_somewhere, pieces_of, text_of
from tests.fakes.server import Served, served

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
TWO_CALLS = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn", "days": [1, {"a": "}"}]}}\n</tool_call>'
)
THOUGHT = "<think>\nIt rains, so: 🙂\n</think>\n\n"


def replayed(events: list[Any]) -> dict[int, dict[str, Any]]:
    """Chunks put together as OpenAI's clients do: choice -> message and finish reason."""
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        for chunk in event["choices"]:
            choice = choices.setdefault(chunk["index"], {"content": "", "reasoning": "", "calls": [], "reason": None})
            assert choice["reason"] is None, "nothing may follow the finish reason"
            delta = chunk["delta"]
            choice["content"] += delta.get("content", "")
            choice["reasoning"] += delta["reasoning"] or ""
            assert delta["reasoning"] == delta["reasoning_content"]
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    assert call["index"] == len(choice["calls"]) and call["type"] == "function"
                    choice["calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                else:
                    assert call["index"] == len(choice["calls"]) - 1 and set(call["function"]) == {"arguments"}
                choice["calls"][-1]["arguments"] += call["function"]["arguments"]
            choice["reason"] = chunk["finish_reason"]
    return choices


def test_a_chat_gets_a_message() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(CHAT, {**HELLO, "model": "ramet-bundled", "max_tokens": 4})
        assert status == 200 and reply["object"] == "chat.completion" and reply["id"].startswith("chatcmpl-")
        message = {"role": "assistant", "content": text_of(1, 4), "refusal": None}
        message |= {"reasoning": None, "reasoning_content": None}
        (choice,) = reply["choices"]
        assert choice == {
            "index": 0, "message": message, "logprobs": None, "finish_reason": "length", "matched_stop": None,
        }  # fmt: skip
        assert reply["usage"] == {
            "prompt_tokens": len("user:Hello\n"),
            "completion_tokens": 4,
            "total_tokens": len("user:Hello\n") + 4,
            "prompt_tokens_details": {"cached_tokens": CACHED},
            "completion_tokens_details": {"reasoning_tokens": 0},
            "reasoning_tokens": 0,
        }
        (sent,) = server.engine.of_type(Generate)
        assert bytes(unpack_ids(sent.content.ids)) == b"user:Hello\n"

    served(check)


def test_the_template_gets_messages_tools_and_what_is_its_to_read() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        messages = [
            {"role": "system", "content": [{"type": "text", "text": "a"}], "name": None},
            {"role": "user", "content": "b", "extra": 1},
            {"role": "assistant", "content": "c"},
        ]
        body = {
            "messages": messages, "tools": [WEATHER], "reasoning_effort": "low", "verbosity": "high",
            "documents": [{"text": "d"}], "chat_template_kwargs": {"enable_thinking": False, "z": [1]},
            "continue_final_message": True,
        }  # fmt: skip
        assert (await server.post(CHAT, body))[0] == 200
        (sent,) = server.engine.of_type(Render)
        chat = orjson.loads(sent.chat)
        assert chat["messages"] == messages
        assert chat["tools"] == [WEATHER]
        assert chat["kwargs"] == {
            "reasoning_effort": "low", "enable_thinking": False, "verbosity": "high", "documents": [{"text": "d"}],
            "z": [1],
        }  # fmt: skip
        assert (chat["add_generation_prompt"], chat["continue_final_message"]) == (False, True)
        await server.post(CHAT, {**HELLO, "reasoning_effort": "none"})
        assert orjson.loads(server.engine.of_type(Render)[1].chat)["kwargs"]["enable_thinking"] is False

    served(check)


def test_an_output_may_go_to_the_context_s_end_and_takes_the_newer_name_of_its_limit() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        await server.post(CHAT, HELLO)
        await server.post(CHAT, {**HELLO, "max_tokens": 7, "max_completion_tokens": 5})
        first, second = server.engine.of_type(Generate)
        assert (first.spec.params.max_new_tokens, second.spec.params.max_new_tokens) == (MAX_NEW_TOKENS, 5)

    served(check)


def test_fields_become_sampling_parameters() -> None:
    async def check(server: Served) -> None:
        await server.post(CHAT, {
            **HELLO, "max_tokens": 9, "n": 2, "seed": 5, "temperature": 0.5, "top_p": 0.9, "stop": ["x"],
            "frequency_penalty": 1, "presence_penalty": -1, "logit_bias": {"3": 2}, "top_k": 3, "min_tokens": 1,
            "user": "u", "metadata": {"a": 1}, "store": True, "service_tier": "auto", "unknown": 1,
        })  # fmt: skip
        (sent,) = server.engine.of_type(Generate)
        assert sent.spec.params == SamplingParams(
            max_new_tokens=9, n=2, sampling_seed=5, temperature=0.5, top_p=0.9, stop=("x",), frequency_penalty=1.0,
            presence_penalty=-1.0, logit_bias=((3, 2.0),), top_k=3, min_new_tokens=1,
        )  # fmt: skip

    served(check)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(
    "text", ["plain text, 日本 🙂", THOUGHT + "The answer.", "Sure.\n" + TWO_CALLS, THOUGHT + TWO_CALLS + " and text"]
)
def test_a_stream_says_what_the_whole_reply_says(text: str, seed: int) -> None:
    async def check(server: Served) -> None:
        most = cut_somewhere(server.engine, text, seed)
        body = {**HELLO, "tools": [WEATHER], "n": 2, "max_tokens": most, "logprobs": seed % 3 == 0}
        _, whole = await server.post(CHAT, body)
        *events, done = await server.events(CHAT, {**body, "stream": True})
        assert done == "[DONE]"
        streamed = replayed(events)
        for choice in whole["choices"]:
            message, seen = choice["message"], streamed[choice["index"]]
            assert seen["content"] == (message["content"] or "")
            assert seen["reasoning"] == (message["reasoning"] or "")
            assert seen["reason"] == choice["finish_reason"]
            assert [(call["name"], call["arguments"]) for call in seen["calls"]] == [
                (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())
            ]

    served(check)


def test_calls_thought_and_text_are_separated() -> None:
    async def check(server: Served) -> None:
        server.engine.says = [THOUGHT, "Sure.\n", TWO_CALLS]
        _, reply = await server.post(CHAT, {**HELLO, "tools": [WEATHER]})
        (choice,) = reply["choices"]
        message = choice["message"]
        assert message["reasoning"] == message["reasoning_content"] == "It rains, so: 🙂"
        assert message["content"] == "Sure." and choice["finish_reason"] == "tool_calls"
        assert choice["matched_stop"] == EOS
        cities = [orjson.loads(call["function"]["arguments"])["city"] for call in message["tool_calls"]]
        assert cities == ["Rome", "Bonn"]
        ids = [call["id"] for call in message["tool_calls"]]
        assert len(set(ids)) == 2 and all(re.fullmatch("call_[0-9a-f]{24}", one) for one in ids)
        assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}

    served(check)


def test_a_message_of_calls_alone_has_no_content() -> None:
    async def check(server: Served) -> None:
        server.engine.says = [TWO_CALLS]
        _, reply = await server.post(CHAT, {**HELLO, "tools": [WEATHER]})
        assert reply["choices"][0]["message"]["content"] is None

    served(check)


@pytest.mark.parametrize("extra", [{}, {"tools": [WEATHER], "tool_choice": "none"}])
def test_without_tools_a_call_is_text(extra: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = [TWO_CALLS]
        _, reply = await server.post(CHAT, {**HELLO, **extra})
        assert reply["choices"][0]["message"]["content"] == TWO_CALLS
        assert reply["choices"][0]["finish_reason"] == "stop"
        assert orjson.loads(server.engine.of_type(Render)[0].chat)["tools"] is None

    served(check)


@pytest.mark.parametrize("stream", [False, True])
def test_one_call_alone_is_returned_where_calls_are_not_parallel(stream: bool) -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(TWO_CALLS + "\nDone.", 3)
        body = {**HELLO, "tools": [WEATHER], "parallel_tool_calls": False}
        if stream:
            *events, _ = await server.events(CHAT, {**body, "stream": True})
            calls = [call["arguments"] for call in replayed(events)[0]["calls"]]
        else:
            _, reply = await server.post(CHAT, body)
            calls = [call["function"]["arguments"] for call in reply["choices"][0]["message"]["tool_calls"]]
        assert [orjson.loads(call) for call in calls] == [{"city": "Rome"}]

    served(check)


def test_a_call_that_the_limit_cut_off_ends_with_length() -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(TWO_CALLS, 1)
        _, reply = await server.post(CHAT, {**HELLO, "tools": [WEATHER], "max_tokens": 12})
        (choice,) = reply["choices"]
        assert (
            choice["finish_reason"] == "length" and choice["message"]["tool_calls"][0]["function"]["name"] == "weather"
        )

    served(check)


def test_an_output_whose_prompt_opened_the_thought_starts_inside_it() -> None:
    async def check(server: Served) -> None:
        server.engine.says, server.engine.prompt_end = ["so it", " is\n</think>\n", "Yes."], "assistant\n<think>\n"
        _, reply = await server.post(CHAT, HELLO)
        message = reply["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("so it is", "Yes.")
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2
        _, reply = await server.post(CHAT, {**HELLO, "separate_reasoning": False})
        assert reply["choices"][0]["message"]["content"] == "so it is\n</think>\nYes."

    served(check)


def test_special_tokens_are_shown_to_the_parsers_that_look_for_them() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ['[TOOL_CALLS] [{"name": "weather", "arguments": {}}]']
        _, reply = await server.post(CHAT, {**HELLO, "tools": [WEATHER]})
        (call,) = reply["choices"][0]["message"]["tool_calls"]
        assert re.fullmatch("[0-9A-Za-z]{9}", call["id"]), "Mistral's template takes no other ids back"
        await server.post(CHAT, HELLO)
        _, reply = await server.post(CHAT, {**HELLO, "tools": [WEATHER], "skip_special_tokens": True})
        assert reply["choices"][0]["message"]["tool_calls"]
        shown = [sent.spec.params.skip_special_tokens for sent in server.engine.of_type(Generate)]
        assert shown == [False, True, False]

    served(check, style=Style("mistral", None))


def test_usage_is_the_last_chunk_when_asked() -> None:
    async def check(server: Served) -> None:
        server.engine.says = [THOUGHT, "Yes"]
        body = {**HELLO, "n": 2, "stream": True, "stream_options": {"include_usage": True}}
        first, *events, last, done = await server.events(CHAT, body)
        assert done == "[DONE]" and last["choices"] == []
        assert last["usage"]["completion_tokens"] == 4
        assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
        assert all(event["usage"] is None for event in [first, *events])
        role = {"role": "assistant", "content": "", "reasoning": None, "reasoning_content": None}
        assert first["choices"][0]["delta"] == role

    served(check)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_one_place_for_each_token(stream: bool) -> None:
    async def check(server: Served) -> None:
        server.engine.says = [THOUGHT[:7], THOUGHT[7:], "", "Yes"]
        body = {**HELLO, "logprobs": True, "stream": stream}
        if stream:
            *events, _ = await server.events(CHAT, body)
            logprobs = [chunk["logprobs"] for event in events for chunk in event["choices"] if chunk["logprobs"]]
            places = [place for each in logprobs for place in each["content"]]
        else:
            _, reply = await server.post(CHAT, body)
            places = reply["choices"][0]["logprobs"]["content"]
        assert len(places) == 4 and all(set(p) == {"token", "logprob", "bytes", "top_logprobs"} for p in places)

    served(check)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_can_name_tokens_by_their_ids(stream: bool) -> None:
    async def check(server: Served) -> None:
        body = {**HELLO, "logprobs": True, "max_tokens": 3, "stream": stream}
        asked = {**body, "return_token_ids": True, "return_tokens_as_token_ids": True}
        if stream:
            choices = [choice for event in (await server.events(CHAT, asked))[:-1] for choice in event["choices"]]
        else:
            choices = (await server.post(CHAT, asked))[1]["choices"]
        places = [place for choice in choices if choice["logprobs"] for place in choice["logprobs"]["content"]]
        ids = [token for choice in choices for token in choice["token_ids"]]
        assert len(ids) == 3 and [place["token"] for place in places] == [f"token_id:{each}" for each in ids]
        assert all(place["bytes"] == list(str(token).encode()) for place, token in zip(places, ids))

    served(check)


@pytest.mark.parametrize("field, value", [
    ("tool_choice", {"type": "function", "function": {"name": "other"}}),
    ("tool_choice", "maybe"), ("json_schema", "["), ("regex", "\0"), ("functions", [{}]), ("audio", {"voice": "a"}),
    ("modalities", ["text", "audio"]), ("web_search_options", {}), ("chat_template", "{{ 1 }}"),
    ("top_logprobs", 3), ("top_logprobs", 300), ("messages", "Hello"), ("messages", None), ("n", 0),
    ("max_completion_tokens", -1), ("max_tokens", 1.5), ("temperature", -1), ("stop", 3),
    ("tools", [{"type": "functions"}]),
    ("tools", [{"type": "function", "function": {"name": "no spaces"}}]), ("logprobs", 3), ("stream", "yes"),
    ("response_format", {"type": "yaml"}), ("response_format", {"type": "json_schema"}),
])  # fmt: skip
def test_what_is_wrong_or_not_built_is_refused_by_name(field: str, value: Any) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(CHAT, {**HELLO, "tools": [WEATHER], field: value})
        assert status == 400 and reply["error"]["type"] == "invalid_request_error"
        assert re.split(r"[.\[]", reply["error"]["param"])[0] == field and field in reply["error"]["message"]
        assert not server.engine.of_type(Generate)

    served(check)


def test_tools_are_refused_where_no_parser_finds_their_calls() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(CHAT, {**HELLO, "tools": [WEATHER]})
        assert (
            status == 400 and reply["error"]["param"] == "tools" and "--tool-call-parser" in reply["error"]["message"]
        )
        server.engine.says = ["Hi"]
        assert (await server.post(CHAT, {**HELLO, "tools": [WEATHER], "tool_choice": "none"}))[0] == 200

    served(check, style=Style(None, None))


@pytest.mark.parametrize("path, body", [
    (CHAT, HELLO), ("/v1/completions", {"prompt": "a"}), ("/generate", {"text": "a"}),
    ("/v1/messages", {**HELLO, "max_tokens": 3}), ("/v1/responses", {"input": "a"}),
])  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_s_id_is_in_its_header_and_in_the_log(
    path: str, body: dict[str, Any], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        data = orjson.dumps({**body, "stream": stream})
        async with server.http.post(path, data=data, headers={"X-Request-Id": "mine-7"}) as response:
            await response.read()
            assert response.headers["X-Request-Id"] == "mine-7"
        async with server.http.post(path, data=data) as response:
            await response.read()
            made = response.headers["X-Request-Id"]
        async with server.http.post(path, data=b"[", headers={"X-Request-Id": "mine-8"}) as response:
            assert response.status == 400 and response.headers["X-Request-Id"] == "mine-8"
        server.client.request_log.close()
        named, unnamed = re.findall(r"Request (\S+): ", caplog.text)
        assert named.endswith(":mine-7") and len(named) > 20 and unnamed == made

    caplog.set_level("INFO", logger="ramet")
    served(check, log_requests=True)


def test_openai_s_client_reads_calls_from_a_stream() -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(TWO_CALLS, 5)
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
        asked: Any = {**HELLO, "tools": [WEATHER], "model": "ramet-bundled"}
        async with client.chat.completions.stream(**asked) as stream:
            message = (await stream.get_final_completion()).choices[0].message
        assert message.tool_calls is not None
        assert [call.function.name for call in message.tool_calls] == ["weather", "weather"]

    served(check)
