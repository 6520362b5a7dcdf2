"""LiteLLM with the prefixes that its users write: openai/, hosted_vllm/, text-completion-openai/."""

import asyncio
import json
from typing import Any

import litellm
import pytest
from asked import (
    CAPITAL,
    CAPITAL_ANSWER,
    CAPITAL_TOKENS,
    EXTRACT,
    MARIA,
    MODEL,
    PLACED,
    ROME,
    ROME_AND_OSLO,
    ROME_ANSWER,
    TEXT,
    THERE,
    THINK,
    THOUGHT,
    THOUGHT_ANSWER,
    TOO_LONG,
    TOOL,
    placed,
    user,
)
from live import Live
from pydantic import BaseModel

litellm.suppress_debug_info = True
PREFIXES = ("openai/", "hosted_vllm/")


@pytest.fixture(params=PREFIXES)
def at(server: Live, request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"model": request.param + MODEL, "api_base": server.url + "/v1", "api_key": "none", "max_retries": 0}


def complete(at: dict[str, Any], messages: list[Any], **options: Any) -> Any:
    return litellm.completion(messages=messages, temperature=0, **at, **options)


def test_a_completion_is_answered_with_its_usage(at: dict[str, Any]):
    reply = complete(at, user(CAPITAL))
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (CAPITAL_ANSWER, "stop")
    assert reply.usage.completion_tokens == CAPITAL_TOKENS


def test_a_stream_is_the_whole_text_and_ends_with_its_usage(at: dict[str, Any]):
    chunks = list(complete(at, user(CAPITAL), stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == CAPITAL_ANSWER
    assert chunks[-1].usage.completion_tokens == CAPITAL_TOKENS


def test_acompletion_streams(at: dict[str, Any]):
    async def ask() -> str:
        stream = await litellm.acompletion(messages=user(CAPITAL), temperature=0, stream=True, **at)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(ask()) == CAPITAL_ANSWER


def test_a_call_and_its_result_make_an_answer(at: dict[str, Any]):
    first = complete(at, user(ROME), tools=[TOOL]).choices[0]
    (call,) = first.message.tool_calls
    assert (first.finish_reason, call.function.name) == ("tool_calls", "get_temperature")
    content = THERE[json.loads(call.function.arguments)["city"]]
    result = {"role": "tool", "tool_call_id": call.id, "content": content}
    last = complete(at, [*user(ROME), first.message.model_dump(), result], tools=[TOOL])
    assert last.choices[0].message.content == ROME_ANSWER


def test_streamed_calls_are_built_again_from_their_chunks(at: dict[str, Any]):
    chunks = list(complete(at, user(ROME_AND_OSLO), tools=[TOOL], stream=True))
    calls = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Rome", "Oslo"]


def test_reasoning_is_found_under_litellm_s_name(at: dict[str, Any]):
    message = complete(at, user(THINK)).choices[0].message
    assert message.content == THOUGHT_ANSWER and message.reasoning_content.endswith(THOUGHT)


class Person(BaseModel):
    name: str
    city: str
    age: int


def test_a_response_format_is_kept_to(at: dict[str, Any]):
    content = complete(at, user(TEXT), response_format=Person).choices[0].message.content
    assert json.loads(content) == MARIA
    form = {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": Person.model_json_schema()}}
    assert json.loads(complete(at, user(TEXT), response_format=form).choices[0].message.content) == MARIA
    form = {"type": "json_schema", "json_schema": {"name": "placed", "schema": PLACED}}
    assert placed(complete(at, user(EXTRACT), response_format=form).choices[0].message.content)
    content = complete(at, user(CAPITAL), response_format={"type": "json_object"}).choices[0].message.content
    assert isinstance(json.loads(content), dict)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_temperature"}}])
def test_a_call_that_is_forced_is_made(at: dict[str, Any], choice: Any):
    message = complete(at, user(CAPITAL), tools=[TOOL], tool_choice=choice, max_tokens=200).choices[0].message
    for call in message.tool_calls:
        assert call.function.name == "get_temperature" and json.loads(call.function.arguments).keys() == {"city"}


def test_embeddings_have_one_vector_for_each_text(at: dict[str, Any]):
    first, second = litellm.embedding(input=["A cat sleeps.", CAPITAL], **at).data
    assert len(first["embedding"]) == 256 and first["embedding"] != second["embedding"]


def test_a_prompt_beyond_the_context_is_litellm_s_own_error(at: dict[str, Any]):
    with pytest.raises(litellm.ContextWindowExceededError, match="4096"):
        complete(at, user(TOO_LONG))


def test_errors_are_litellm_s_classes(at: dict[str, Any], guarded: Live):
    with pytest.raises(litellm.NotFoundError, match=MODEL):
        complete(at | {"model": at["model"] + "-2"}, user(CAPITAL))
    with pytest.raises(litellm.BadRequestError, match="top_p is 7"):
        complete(at, user(CAPITAL), top_p=7)
    with pytest.raises(litellm.AuthenticationError):
        complete(at | {"api_base": guarded.url + "/v1"}, user(CAPITAL))


def test_a_text_completion_is_answered(server: Live):
    reply = litellm.text_completion(
        model="text-completion-openai/" + MODEL,
        prompt="37 + 58 =",
        temperature=0,
        max_tokens=8,
        api_base=server.url + "/v1",
        api_key="none",
    )
    assert reply.choices[0].text == " 95"


def test_an_anthropic_prefix_reaches_messages(server: Live):
    reply = litellm.completion(
        model="anthropic/" + MODEL, messages=user(CAPITAL), temperature=0, api_base=server.url, api_key="none"
    )
    assert reply.choices[0].message.content == CAPITAL_ANSWER
