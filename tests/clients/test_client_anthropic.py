"""anthropic-sdk-python: messages, streams, tools, thinking, counting, errors."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from asked import (
    CAPITAL,
    CAPITAL_ANSWER,
    CAPITAL_TOKENS,
    CITY,
    EXTRACT,
    LOOK,
    MARIA,
    MODEL,
    PLACED,
    ROME,
    ROME_AND_OSLO,
    ROME_ANSWER,
    TEXT,
    THERE,
    THOUGHT,
    THOUGHT_ANSWER,
    TOO_LONG,
    placed,
    user,
)
from live import Live
from pydantic import BaseModel

TOOL: Any = {"name": "get_temperature", "description": "The temperature of a city", "input_schema": CITY}
# This version of the client has no argument `temperature`.
GREEDY: dict[str, Any] = {"model": MODEL, "max_tokens": 200, "extra_body": {"temperature": 0}}
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}
SUM = "What is 37 + 58?"


@pytest.fixture
def client(server: Live) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def test_a_message_is_answered_with_its_usage(client: anthropic.Anthropic):
    reply = client.messages.create(messages=user(CAPITAL), **GREEDY)
    (block,) = reply.content
    assert (block.type, block.text, reply.stop_reason) == ("text", CAPITAL_ANSWER, "end_turn")
    assert (reply.role, reply.model, reply.usage.output_tokens) == ("assistant", MODEL, CAPITAL_TOKENS)


def test_system_and_earlier_turns_are_read(client: anthropic.Anthropic):
    turns = [*user("My name is Anna."), {"role": "assistant", "content": "Hello Anna."}, *user("What is my name?")]
    reply = client.messages.create(system="You are a helpful assistant.", messages=turns, **GREEDY)
    assert "Anna" in reply.content[0].text


def test_the_stream_helper_gives_text_and_the_final_message(client: anthropic.Anthropic):
    with client.messages.stream(messages=user(CAPITAL), **GREEDY) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(texts) > 3 and "".join(texts) == CAPITAL_ANSWER
    assert (final.content[0].text, final.stop_reason) == (CAPITAL_ANSWER, "end_turn")
    assert final.usage.output_tokens == CAPITAL_TOKENS


def test_a_tool_use_and_its_result_make_an_answer(client: anthropic.Anthropic):
    first = client.messages.create(messages=user(ROME), tools=[TOOL], **GREEDY)
    (use,) = first.content
    assert (first.stop_reason, use.type, use.name, use.input) == (
        "tool_use",
        "tool_use",
        "get_temperature",
        {"city": "Rome"},
    )
    result = {"type": "tool_result", "tool_use_id": use.id, "content": THERE[use.input["city"]]}
    turns = [*user(ROME), {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    last = client.messages.create(messages=turns, tools=[TOOL], **GREEDY)
    assert (last.content[0].text, last.stop_reason) == (ROME_ANSWER, "end_turn")


def test_the_tool_runner_sends_whole_chats_and_ends_with_the_answer(client: anthropic.Anthropic):
    ran = []

    @anthropic.beta_tool
    def get_temperature(city: str) -> str:
        """The temperature of a city"""
        ran.append(city)
        return THERE[city]

    last = client.beta.messages.tool_runner(messages=user(ROME), tools=[get_temperature], **GREEDY).until_done()
    assert (ran, last.content[0].text) == (["Rome"], ROME_ANSWER)


def test_streamed_tool_uses_have_their_input_in_pieces(client: anthropic.Anthropic):
    with client.messages.stream(messages=user(ROME_AND_OSLO), tools=[TOOL], **GREEDY) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert len(pieces) > 4
    assert [use.input for use in final.content] == [{"city": "Rome"}, {"city": "Oslo"}]
    assert final.stop_reason == "tool_use"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_temperature"}])
def test_a_forced_tool_is_used_where_the_model_would_not(client: anthropic.Anthropic, choice: Any):
    choice = choice | {"disable_parallel_tool_use": True}
    (use,) = client.messages.create(messages=user(CAPITAL), tools=[TOOL], tool_choice=choice, **GREEDY).content
    assert (use.type, use.name, use.input.keys()) == ("tool_use", "get_temperature", {"city"})


@pytest.mark.parametrize("name", ["look", "get_temperature"])
def test_the_named_tool_is_used_whichever_the_model_would_use(client: anthropic.Anthropic, name: str):
    tools: Any = [{"name": "look", "input_schema": LOOK}, TOOL]
    choice: Any = {"type": "tool", "name": name}
    for asked in (ROME, CAPITAL):
        reply = client.messages.create(messages=user(asked), tools=tools, tool_choice=choice, **GREEDY)
        (use,) = [block for block in reply.content if block.type != "thinking"]
        assert (use.name, use.input.keys()) == (name, {"deep", "at"} if name == "look" else {"city"})


def test_no_tool_is_used_with_the_choice_none(client: anthropic.Anthropic):
    reply = client.messages.create(messages=user(ROME), tools=[TOOL], tool_choice={"type": "none"}, **GREEDY)
    assert {block.type for block in reply.content} == {"text"} and reply.stop_reason == "end_turn"


def test_parallel_uses_can_be_switched_off(client: anthropic.Anthropic):
    for alone, cities in ((False, ["Rome", "Oslo"]), (True, ["Rome"])):
        choice: Any = {"type": "auto", "disable_parallel_tool_use": alone}
        reply = client.messages.create(messages=user(ROME_AND_OSLO), tools=[TOOL], tool_choice=choice, **GREEDY)
        assert [use.input["city"] for use in reply.content] == cities


def test_a_strict_tool_is_used_with_an_input_of_its_schema(client: anthropic.Anthropic):
    city = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Hanoi"]}}, "required": ["city"]}
    strict: Any = {**TOOL, "input_schema": city, "strict": True}
    (use,) = client.messages.create(messages=user(ROME), tools=[strict], **GREEDY).content
    assert use.input["city"] in ("Oslo", "Hanoi")  # Rome is not offered


def test_the_text_keeps_to_the_schema_of_the_output(client: anthropic.Anthropic):
    fields = {"name": {"type": "string"}, "city": {"type": "string"}, "age": {"type": "integer"}}
    form: Any = {"type": "json_schema", "schema": {"type": "object", "properties": fields, "required": [*fields]}}
    reply = client.messages.create(messages=user(TEXT), output_config={"format": form}, **GREEDY)
    assert json.loads(reply.content[0].text) == MARIA
    older = client.beta.messages.create(messages=user(TEXT), **GREEDY | {"extra_body": {
        "temperature": 0, "output_format": form}})  # fmt: skip
    assert json.loads(older.content[0].text) == MARIA


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_a_schema_is_kept_to_where_the_prompt_asks_for_more(client: anthropic.Anthropic, name: str):
    form = {"type": "json_schema", "schema": PLACED}
    body = {"temperature": 0, name: {"format": form} if name == "output_config" else form}
    reply = client.messages.create(messages=user(EXTRACT), **GREEDY | {"extra_body": body})
    assert placed(reply.content[0].text)


class Person(BaseModel):
    name: str
    city: str
    age: int


def test_parse_gives_a_model_of_a_text_that_asks_for_none(client: anthropic.Anthropic):
    reply = client.messages.parse(messages=user(TEXT), output_format=Person, **GREEDY)
    assert reply.parsed_output == Person(**MARIA)


def test_thinking_comes_in_a_block_before_the_text(client: anthropic.Anthropic):
    thinking, text = client.messages.create(messages=user(SUM), thinking=THINKING, **GREEDY).content
    assert (thinking.type, text.type, text.text) == ("thinking", "text", THOUGHT_ANSWER)
    assert thinking.thinking.endswith(THOUGHT)
    (only,) = client.messages.create(messages=user(SUM), thinking={"type": "disabled"}, **GREEDY).content
    assert only.type == "text" and "95" in only.text


def test_streamed_thinking_is_the_whole_one(client: anthropic.Anthropic):
    with client.messages.stream(messages=user(SUM), thinking=THINKING, **GREEDY) as stream:
        thought = "".join(event.thinking for event in stream if event.type == "thinking")
        final = stream.get_final_message()
    assert thought.endswith(THOUGHT) and thought == final.content[0].thinking
    assert final.content[1].text == THOUGHT_ANSWER


def test_counted_tokens_are_those_of_the_prompt(client: anthropic.Anthropic):
    count = client.messages.count_tokens(model=MODEL, messages=user(ROME), tools=[TOOL])
    usage = client.messages.create(messages=user(ROME), tools=[TOOL], **GREEDY).usage
    assert count.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert count.input_tokens > client.messages.count_tokens(model=MODEL, messages=user(ROME)).input_tokens


def test_stop_sequences_and_max_tokens_end_the_message(client: anthropic.Anthropic):
    stopped = client.messages.create(messages=user(CAPITAL), stop_sequences=[" is"], **GREEDY)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " is")
    assert stopped.content[0].text == "The capital of Vietnam"
    cut = client.messages.create(messages=user(CAPITAL), **GREEDY | {"max_tokens": 3})
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)


def test_errors_are_the_client_s_classes(client: anthropic.Anthropic, guarded: Live):
    with pytest.raises(anthropic.NotFoundError, match=MODEL) as refused:
        client.messages.create(messages=user(CAPITAL), **GREEDY | {"model": "other"})
    assert refused.value.type == "not_found_error" and refused.value.request_id
    with pytest.raises(anthropic.BadRequestError, match="temperature is -1"):
        client.messages.create(messages=user(CAPITAL), **GREEDY | {"extra_body": {"temperature": -1}})
    with pytest.raises(anthropic.BadRequestError, match="at most 4095"):
        client.messages.create(messages=user(TOO_LONG), **GREEDY)
    with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
        client.messages.create(messages=user(ROME), tool_choice={"type": "any"}, **GREEDY)
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=guarded.url, api_key="wrong", max_retries=0).messages.create(
            messages=user(CAPITAL), **GREEDY
        )


def test_the_key_may_be_a_key_or_a_bearer_s_token(guarded: Live):
    for named in ({"api_key": "right"}, {"auth_token": "right"}):
        with anthropic.Anthropic(base_url=guarded.url, max_retries=0, **named) as client:
            assert client.messages.create(messages=user(CAPITAL), **GREEDY).content[0].text == CAPITAL_ANSWER


def test_the_async_client_streams(server: Live):
    async def ask() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as client:
            whole = await client.messages.create(messages=user(CAPITAL), **GREEDY)
            async with client.messages.stream(messages=user(CAPITAL), **GREEDY) as stream:
                streamed = "".join([text async for text in stream.text_stream])
        return [whole.content[0].text, streamed]

    assert asyncio.run(ask()) == [CAPITAL_ANSWER] * 2
