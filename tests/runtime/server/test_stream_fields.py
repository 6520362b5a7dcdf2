"""What clients of SGLang and vLLM ask of a stream: usage in every chunk, token ids, several tokens in one event."""

from typing import Any

import pytest

from ramet.ipc.messages import Generate
from tests.fakes.engine import CACHED, pieces_of, text_of, token_at
from tests.fakes.server import Served, served

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
PROMPT = list(b"user:Hello\n")
OUTPUT = '<think>hm hm</think>Well, <tool_call>\n{"name": "weather", "arguments": {"x": 1}}\n</tool_call>'
PLAIN = "Some words, and a few more of them, one piece after the other."
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
EACH = {"continuous_usage_stats": True}
LOGPROBS: list[dict[str, Any]] = [{}, {"logprobs": True}]


async def chunks_of(server: Served, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    *chunks, done = await server.events(path, {**body, "stream": True})
    assert done == "[DONE]"
    return chunks


def check_growth(chunks: list[dict[str, Any]], prompt_tokens: int, total: int) -> None:
    """Every chunk has the usage so far of its own choice."""
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[0] <= 1 and counts[-1] == total
    for chunk in chunks:
        usage = chunk["usage"]
        assert usage["prompt_tokens"] == prompt_tokens
        assert usage["total_tokens"] == prompt_tokens + usage["completion_tokens"]
        assert usage["prompt_tokens_details"] == {"cached_tokens": CACHED}


@pytest.mark.parametrize("fields", LOGPROBS)
@pytest.mark.parametrize("options", [EACH, {**EACH, "include_usage": True}])
def test_every_chunk_has_usage_where_it_is_asked_for(options: dict[str, Any], fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        chunks = await chunks_of(server, CHAT, {**HELLO, **fields, "max_tokens": 5, "stream_options": options})
        if "include_usage" in options:
            last = chunks.pop()
            assert last["choices"] == [] and last["usage"]["completion_tokens"] == 5
        check_growth(chunks, len(PROMPT), 5)
        assert len({chunk["usage"]["completion_tokens"] for chunk in chunks}) >= 4
        asked = {"prompt": "abc", "max_tokens": 5, "stream_options": options} | ({"logprobs": 1} if fields else {})
        chunks = await chunks_of(server, COMPLETIONS, asked)
        assert len(chunks) == 5 + ("include_usage" in options)
        check_growth(chunks[:5], 3, 5)

    served(check)


def test_usage_of_each_chunk_counts_reasoning() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["<think>", "a", "</think>", "\n", "b", "c"]
        chunks = await chunks_of(server, CHAT, {**HELLO, "stream_options": EACH})
        assert [chunk["usage"]["reasoning_tokens"] for chunk in chunks] == [0, 2, 3, 3, 3]

    served(check)


@pytest.mark.parametrize("options", [{}, {"include_usage": False}, {"continuous_usage_stats": False}])
def test_no_chunk_has_usage_otherwise(options: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        for path, body in ((CHAT, HELLO), (COMPLETIONS, {"prompt": "a"})):
            chunks = await chunks_of(server, path, {**body, "max_tokens": 3, "stream_options": options})
            assert all("usage" not in chunk for chunk in chunks)

    served(check)


def test_a_completion_has_the_ids_of_its_prompt_and_output() -> None:
    async def check(server: Served) -> None:
        body = {"prompt": ["abc", "d"], "max_tokens": 4, "n": 2, "return_token_ids": True}
        _, reply = await server.post(COMPLETIONS, body)
        ids = [(choice["prompt_token_ids"], choice["token_ids"]) for choice in reply["choices"]]
        assert ids == [
            (list(b"abc" if uid < 3 else b"d"), [token_at(uid, i) for i in range(4)]) for uid in (1, 2, 3, 4)
        ]
        chunks = await chunks_of(server, COMPLETIONS, {"prompt": "abc", "max_tokens": 3, "return_token_ids": True})
        (first, *rest) = [chunk["choices"][0] for chunk in chunks]
        assert first["prompt_token_ids"] == list(b"abc") and all("prompt_token_ids" not in each for each in rest)
        assert [each["token_ids"] for each in (first, *rest)] == [[token_at(5, i)] for i in range(3)]
        _, reply = await server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1})
        assert not {"prompt_token_ids", "token_ids"} & reply["choices"][0].keys()

    served(check)


@pytest.mark.parametrize("fields", LOGPROBS)
@pytest.mark.parametrize("output", [PLAIN, OUTPUT])
def test_a_chat_has_the_ids_of_its_prompt_and_output(output: str, fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(output, 4)
        body = {**HELLO, **fields, "tools": [WEATHER], "max_tokens": 60, "return_token_ids": True}
        _, reply = await server.post(CHAT, body)
        (choice,) = reply["choices"]
        number = reply["usage"]["completion_tokens"]
        assert reply["prompt_token_ids"] == PROMPT and choice["token_ids"] == [token_at(1, i) for i in range(number)]
        first, *chunks = await chunks_of(server, CHAT, body)
        assert first["prompt_token_ids"] == PROMPT and all("prompt_token_ids" not in chunk for chunk in chunks)
        ids = [token for chunk in (first, *chunks) for token in chunk["choices"][0]["token_ids"]]
        assert ids == [token_at(2, i) for i in range(number)]
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert text == choice["message"]["content"]

    served(check)


def test_prompt_ids_alone_are_in_the_choices_of_a_chat() -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post(CHAT, {**HELLO, "max_tokens": 1, "return_prompt_token_ids": True})
        (choice,) = reply["choices"]
        assert choice["prompt_token_ids"] == PROMPT and "token_ids" not in choice and "prompt_token_ids" not in reply

    served(check)


def test_generate_returns_the_prompt_s_ids() -> None:
    async def check(server: Served) -> None:
        body = {"text": ["ab", "c"], "return_prompt_token_ids": True, "sampling_params": {"max_new_tokens": 1}}
        _, replies = await server.post(GENERATE, body)
        assert [reply["prompt_token_ids"] for reply in replies] == [[97, 98], [99]]
        status, reply = await server.post(GENERATE, {"input_embeds": [[0.0] * 4], "return_prompt_token_ids": True})
        assert status == 400 and reply["error"]["message"].startswith("return_prompt_token_ids is True")

    served(check)


@pytest.mark.parametrize("fields", [
    {}, {"tools": [WEATHER]}, {"logprobs": True}, {"return_token_ids": True}, {"stream_options": EACH},
])  # fmt: skip
@pytest.mark.parametrize("output", [PLAIN, OUTPUT])
def test_an_event_of_a_chat_has_several_tokens(output: str, fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(output, 4)
        body = {**HELLO, **fields, "max_tokens": 60}
        single = await chunks_of(server, CHAT, body)
        several = await chunks_of(server, CHAT, {**body, "stream_interval": 10})
        assert len(several) < len(single)
        assert told(several) == told(single)
        assert server.engine.of_type(Generate)[-1].spec.params.stream_interval == 10

    served(check)


def told(chunks: list[dict[str, Any]]) -> tuple[Any, ...]:
    """All that the chunks of a choice say together; ids of tokens and calls are the sequence's own."""
    choices = [chunk["choices"][0] for chunk in chunks]
    deltas = [choice["delta"] for choice in choices]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    return (
        "".join(delta.get("content", "") for delta in deltas),
        "".join(delta["reasoning"] or "" for delta in deltas),
        "".join(call.get("name", "") + call["arguments"] for call in calls),
        sum(len((choice["logprobs"] or {}).get("content", ())) for choice in choices),
        sum(len(choice.get("token_ids", ())) for choice in choices),
        choices[-1]["finish_reason"],
    )


@pytest.mark.parametrize("fields", [{}, {"logprobs": 1}, {"return_token_ids": True}])
def test_an_event_of_a_completion_has_several_tokens(fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of("Some words and more of them", 1)
        body = {"prompt": "abc", **fields, "stream_interval": 4, "echo": True, "max_tokens": 30}
        chunks = await chunks_of(server, COMPLETIONS, body)
        total = len(server.engine.says)
        assert len(chunks) == 1 + -(-(total - 1) // 4)
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "abcSome words and more of them"
        assert chunks[0]["choices"][0]["text"].startswith("abc") and chunks[-1]["choices"][0]["finish_reason"] == "stop"
        if "return_token_ids" in fields:
            assert [len(chunk["choices"][0]["token_ids"]) for chunk in chunks[:2]] == [1, 4]
        if "logprobs" in fields:
            assert [len(chunk["choices"][0]["logprobs"]["tokens"]) for chunk in chunks[:2]] == [1, 4]

    served(check)


def test_an_event_of_generate_has_several_tokens() -> None:
    async def check(server: Served) -> None:
        body = {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 12, "stream_interval": 5}}
        *events, _ = await server.events(GENERATE, body)
        assert [event["meta_info"]["completion_tokens"] for event in events] == [1, 6, 11, 12]
        assert events[-1]["text"] == text_of(1, 12)

    served(check)


@pytest.mark.parametrize("interval", [0, -1, "a", 1.5])
def test_an_interval_is_a_number_of_tokens(interval: Any) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(CHAT, {**HELLO, "stream_interval": interval})
        assert status == 400 and reply["error"]["param"] == "stream_interval"

    served(check)
