"""Where clients look for thoughts and their number: in each delta, usage, meta_info; and thoughts in one piece."""

from typing import Any

import pytest

from ramet.runtime.intake.chat import Style
from tests.fakes.engine import pieces_of, token_at
from tests.fakes.server import Served, served

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
OUTPUT = "<think>\nIt rains, so: 🙂\n</think>\n\nTake a coat."
CALLS = '<think>hm</think><tool_call>\n{"name": "weather", "arguments": {"x": 1}}\n</tool_call>'
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


async def deltas_of(server: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    events = await server.events(CHAT, {**HELLO, **body, "stream": True})
    return [choice["delta"] for event in events[:-1] for choice in event["choices"]]


@pytest.mark.parametrize("fields", [{}, {"logprobs": True}, {"tools": [WEATHER]}, {"separate_reasoning": False}])
@pytest.mark.parametrize("output", ["Hi there", OUTPUT, CALLS])
def test_every_delta_has_the_keys_of_reasoning(output: str, fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(output, 3)
        deltas = await deltas_of(server, fields)
        assert len(deltas) > 2
        for delta in deltas:
            assert {"reasoning", "reasoning_content"} <= delta.keys(), delta
            assert delta["reasoning"] == delta["reasoning_content"] != ""

    served(check)


def test_usage_has_the_number_of_reasoning_tokens_at_both_places() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["<think>", "a", "b", "</think>", "\n", "c"]
        _, reply = await server.post(CHAT, HELLO)
        *_, last, done = await server.events(CHAT, {**HELLO, "stream": True, "stream_options": {"include_usage": True}})
        for usage in (reply["usage"], last["usage"]):
            assert usage["reasoning_tokens"] == usage["completion_tokens_details"]["reasoning_tokens"] == 4
        assert done == "[DONE]"
        server.engine.says = None
        _, reply = await server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 2})
        assert reply["usage"]["reasoning_tokens"] == 0

    served(check)


@pytest.mark.parametrize(("says", "count"), [
    (["<think>"], 1), (["<think>", "\n"], 2), (["<think>", "</think>", "a"], 2), (["a", "b"], 0),
])  # fmt: skip
def test_a_thought_without_text_has_its_tags(says: list[str], count: int) -> None:
    async def check(server: Served) -> None:
        server.engine.says = says
        _, reply = await server.post(CHAT, HELLO)
        assert reply["usage"]["reasoning_tokens"] == count

    served(check)


def joined(deltas: list[dict[str, Any]], key: str) -> str:
    return "".join(delta.get(key) or "" for delta in deltas)


@pytest.mark.parametrize("fields", [{}, {"logprobs": True}, {"tools": [WEATHER]}])
@pytest.mark.parametrize("seed", range(4))
def test_thoughts_come_in_one_piece_before_the_content_streams(seed: int, fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(OUTPUT, seed)
        streamed = await deltas_of(server, fields)
        whole = await deltas_of(server, {**fields, "stream_reasoning": False})
        thoughts = [delta["reasoning_content"] for delta in whole if delta["reasoning_content"] is not None]
        assert thoughts == ["It rains, so: 🙂"] == [joined(streamed, "reasoning_content")]
        kinds = ["thought" if delta["reasoning_content"] else "text" for delta in whole if any(delta.values())][1:]
        assert kinds[0] == "thought" and len(kinds) > 2
        assert joined(whole, "content") == joined(streamed, "content") == "Take a coat."

    served(check)


def test_a_thought_that_never_ends_comes_at_the_end() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["<think>", "a", " b", " c"]
        server.engine.tail = " d"
        deltas = await deltas_of(server, {"stream_reasoning": False})
        assert [delta["reasoning"] for delta in deltas] == [None, "a b c d", None]

    served(check)


def test_a_client_may_leave_thoughts_out() -> None:
    async def check(server: Served) -> None:
        server.engine.says = pieces_of(OUTPUT, 5)
        body = {**HELLO, "include_reasoning": False}
        _, reply = await server.post(CHAT, body)
        message = reply["choices"][0]["message"]
        assert (message["content"], message["reasoning"], message["reasoning_content"]) == ("Take a coat.", None, None)
        assert reply["usage"]["reasoning_tokens"] > 0
        deltas = await deltas_of(server, body)
        assert joined(deltas, "content") == "Take a coat." and not joined(deltas, "reasoning")

    served(check)


PATTERN, SCHEMA, GRAMMAR = {"regex": "x"}, {"json_schema": {}}, {"ebnf": 'root ::= "x"'}
NO_THOUGHT = {"chat_template_kwargs": {"enable_thinking": False}}
TAG = {"structural_tag": {"format": {"type": "any_text"}}}


@pytest.mark.parametrize(("asked", "prompt_end", "says", "thought", "content"), [
    # the pattern spells what looks like tags
    *((asked, "", ["<thi", "nk>", "a</think>b"], None, "<think>a</think>b") for asked in (PATTERN, SCHEMA)),
    (PATTERN | NO_THOUGHT, "", ["<think>", "a</think>b"], None, "<think>a</think>b"),
    *((asked, "", ["<think>", "a</think>  b"], "a", "  b") for asked in (PATTERN, SCHEMA, GRAMMAR)),
    (GRAMMAR, "", ["<thi", "nk>", "a</think>b"], "a", "b"),  # it may name the tokens
    *((asked, "", ["<thi", "nk>", "a</think> b"], "a", "b") for asked in (TAG, {})),
    *((asked, "<think>", ["a\n</", "think>  b "], "a", "  b ") for asked in (PATTERN, SCHEMA, GRAMMAR)),
    *((asked, "<think>", ["a\n</", "think>  b "], "a", "b ") for asked in (TAG, {})),
])  # fmt: skip
def test_content_is_what_the_constraint_allows(
    asked: dict[str, Any], prompt_end: str, says: list[str], thought: str | None, content: str
) -> None:
    async def check(server: Served) -> None:
        server.engine.says, server.engine.prompt_end = says, prompt_end
        _, reply = await server.post(CHAT, {**HELLO, **asked})
        message = reply["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == (thought, content)
        deltas = await deltas_of(server, asked)
        assert (joined(deltas, "reasoning_content") or None, joined(deltas, "content")) == (thought, content)

    served(check)


@pytest.mark.parametrize(("says", "tag", "thought"), [
    (["It", " rains", "</think>", " So"], [999], 3),
    (["<think>", "a", "</thi", "nk>\n", "b", "c"], [60, 61], 4),
    (["a", "b", "c"], [999], 3),  # never closed
])  # fmt: skip
def test_generate_counts_the_thought_of_a_request_that_requires_one(
    says: list[str], tag: list[int], thought: int
) -> None:
    async def check(server: Served) -> None:
        server.engine.says, server.engine.tokenize = says, lambda text: tag
        body = {"text": "a", "require_reasoning": True}
        _, reply = await server.post(GENERATE, body)
        assert reply["meta_info"]["reasoning_tokens"] == thought
        *events, _ = await server.events(GENERATE, {**body, "stream": True})
        counted = [event["meta_info"]["reasoning_tokens"] for event in events]
        assert counted == sorted(counted) and counted[-1] == thought
        _, reply = await server.post(GENERATE, {"text": "a"})
        assert "reasoning_tokens" not in reply["meta_info"]

    served(check)


def test_a_closing_tag_that_does_not_show_in_the_text_ends_a_thought_by_its_id() -> None:
    async def check(server: Served) -> None:
        server.engine.says, server.engine.tokenize = ["a", "b", "", "c"], lambda text: [token_at(1, 2)]
        _, reply = await server.post(GENERATE, {"text": "a", "require_reasoning": True})
        assert reply["meta_info"]["reasoning_tokens"] == 3

    served(check)


def test_reasoning_cannot_be_required_of_a_model_that_is_not_known_to_think() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(GENERATE, {"text": "a", "require_reasoning": True})
        assert status == 400 and reply["error"]["message"].startswith("require_reasoning is True")
        assert "--reasoning-parser" in reply["error"]["message"]
        assert (await server.post(GENERATE, {"text": "a", "require_reasoning": False}))[0] == 200

    served(check, style=Style())
