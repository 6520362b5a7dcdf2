"""LangChain's ChatOpenAI and OpenAIEmbeddings, as its pages tell users to point them at another server."""

import asyncio
import json
import string
from typing import Any

import openai
import pytest
import tiktoken
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
    placed,
)
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from live import Live
from pydantic import BaseModel


@pytest.fixture
def at(server: Live) -> dict[str, Any]:
    return {"base_url": server.url + "/v1", "api_key": "none", "model": MODEL, "max_retries": 0}


@pytest.fixture
def chat(at: dict[str, Any]) -> ChatOpenAI:
    return ChatOpenAI(**at, temperature=0, stream_usage=True)


@tool
def get_temperature(city: str) -> str:
    """The temperature of a city"""
    return THERE[city]


def test_invoke_has_text_and_usage(chat: ChatOpenAI):
    reply = chat.invoke([SystemMessage("You are a helpful assistant."), HumanMessage(CAPITAL)])
    assert reply.content == CAPITAL_ANSWER and reply.response_metadata["finish_reason"] == "stop"
    usage = reply.usage_metadata
    assert usage is not None and usage["output_tokens"] == CAPITAL_TOKENS
    assert usage["total_tokens"] == usage["input_tokens"] + CAPITAL_TOKENS


def test_a_stream_tells_its_usage_once(chat: ChatOpenAI):
    chunks = list(chat.stream(CAPITAL))
    assert "".join(str(chunk.content) for chunk in chunks) == CAPITAL_ANSWER
    (usage,) = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert usage["output_tokens"] == CAPITAL_TOKENS


def test_ainvoke_and_abatch_answer(chat: ChatOpenAI):
    async def ask() -> list[Any]:
        return [await chat.ainvoke(CAPITAL), *await chat.abatch(["What is the capital of France?"] * 2)]

    first, *others = asyncio.run(ask())
    assert first.content == CAPITAL_ANSWER and all("Paris" in other.content for other in others)


def test_a_loop_of_tools_ends_with_the_answer(chat: ChatOpenAI):
    bound = chat.bind_tools([get_temperature])
    messages: list[Any] = [HumanMessage(ROME)]
    rounds = 0
    while True:
        reply = bound.invoke(messages)
        messages.append(reply)
        if not reply.tool_calls:
            break
        rounds += 1
        messages += [get_temperature.invoke(call) for call in reply.tool_calls]
    assert (rounds, reply.content) == (1, ROME_ANSWER)


def test_streamed_calls_add_up(chat: ChatOpenAI):
    whole: Any = None
    for chunk in chat.bind_tools([get_temperature]).stream(ROME_AND_OSLO):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AIMessage)
    assert [call["args"] for call in whole.tool_calls] == [{"city": "Rome"}, {"city": "Oslo"}]
    assert len({call["id"] for call in whole.tool_calls}) == 2


def test_logprobs_are_in_the_metadata(chat: ChatOpenAI):
    reply = chat.bind(logprobs=True, top_logprobs=2).invoke(CAPITAL)
    places = reply.response_metadata["logprobs"]["content"]
    assert "".join(place["token"] for place in places[:-1]) == CAPITAL_ANSWER and len(places[0]["top_logprobs"]) == 2


class Person(BaseModel):
    """Somebody"""

    name: str
    city: str
    age: int


@pytest.mark.parametrize("method, asked", [
    ("function_calling", TEXT), ("json_schema", TEXT), ("json_mode", "Give name, city and age. " + TEXT),
])  # fmt: skip
def test_structured_output_is_of_the_schema_in_each_method(chat: ChatOpenAI, method: Any, asked: str):
    assert chat.with_structured_output(Person, method=method).invoke(asked) == Person(**MARIA)
    whole: Any = chat.with_structured_output(Person, method=method, include_raw=True).invoke(asked)
    assert whole["parsed"] == Person(**MARIA) and whole["parsing_error"] is None


def test_structured_output_takes_a_schema_and_streams(chat: ChatOpenAI):
    schema = {"title": "Person", "description": "", **Person.model_json_schema()}
    assert list(chat.with_structured_output(schema).stream(TEXT))[-1] == MARIA


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_is_kept_to_where_the_prompt_asks_for_more(chat: ChatOpenAI, method: Any, strict: bool | None):
    schema = {"title": "Placed", "description": "", **PLACED}
    made = chat.with_structured_output(schema, method=method, strict=strict).invoke(EXTRACT)
    assert placed(json.dumps(made))


@pytest.mark.parametrize("choice", ["any", "get_temperature"])
def test_a_tool_that_must_be_called_is(chat: ChatOpenAI, choice: str):
    reply = chat.bind_tools([get_temperature], tool_choice=choice, parallel_tool_calls=False).invoke(CAPITAL)
    (call,) = reply.tool_calls
    assert call["name"] == "get_temperature" and call["args"].keys() == {"city"}


def test_a_prompt_beyond_the_context_is_langchain_s_own_error(chat: ChatOpenAI):
    with pytest.raises(ContextOverflowError):
        chat.invoke(TOO_LONG)


def test_the_responses_api_keeps_the_reasoning(at: dict[str, Any]):
    reply = ChatOpenAI(**at, temperature=0, use_responses_api=True).invoke(THINK)
    reasoning, text = reply.content
    assert (reasoning["type"], text["text"], reply.text) == ("reasoning", THOUGHT_ANSWER, THOUGHT_ANSWER)
    assert reasoning["content"][0]["text"].endswith(THOUGHT)


def test_embeddings_of_texts_are_those_of_each_text(at: dict[str, Any]):
    embeddings = OpenAIEmbeddings(**at, check_embedding_ctx_length=False)
    first, second = embeddings.embed_documents(["A cat sleeps.", CAPITAL])
    assert len(first) == 256 and first != second
    assert embeddings.embed_query(CAPITAL) == pytest.approx(second, abs=1e-3)


def test_ids_of_another_tokenizer_are_a_400_with_the_hint(at: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """Without check_embedding_ctx_length=False the client sends ids of its own, here of letters from 90,000 on."""
    ranks = {letter.encode(): 90_000 + index for index, letter in enumerate(string.printable)}
    encoding = tiktoken.Encoding("cl100k_base", pat_str=r".|\n", mergeable_ranks=ranks, special_tokens={})
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {"cl100k_base": encoding})
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        OpenAIEmbeddings(**at).embed_query(CAPITAL)
