"""openai-python: chats, completions, embeddings, models, errors, whole and as streams."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from asked import (
    CAPITAL,
    CAPITAL_ANSWER,
    CAPITAL_TOKENS,
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


@pytest.fixture
def client(server: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI, messages: str | list[Any], **options: Any) -> Any:
    messages = user(messages) if isinstance(messages, str) else messages
    return client.chat.completions.create(model=MODEL, messages=messages, **{"temperature": 0, **options})


def test_a_chat_is_answered_with_its_usage(client: openai.OpenAI):
    reply = chat(client, CAPITAL)
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == (CAPITAL_ANSWER, "stop")
    assert choice.message.role == "assistant" and choice.message.tool_calls is None
    assert reply.usage.completion_tokens == CAPITAL_TOKENS
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + CAPITAL_TOKENS
    again = chat(client, CAPITAL)
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1


def test_a_streamed_chat_is_the_whole_one_and_ends_with_its_usage(client: openai.OpenAI):
    *chunks, last = chat(client, CAPITAL, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == CAPITAL_ANSWER
    assert sum(bool(chunk.choices[0].delta.content) for chunk in chunks) > 3
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == [] and last.usage.completion_tokens == CAPITAL_TOKENS
    assert len({chunk.id for chunk in (*chunks, last)}) == 1


def test_the_stream_helper_accumulates_the_same_completion(client: openai.OpenAI):
    with client.chat.completions.stream(
        model=MODEL, messages=user(ROME_AND_OSLO), tools=[TOOL], temperature=0
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [json.loads(event.arguments) for event in done] == [{"city": "Rome"}, {"city": "Oslo"}]
    calls = final.choices[0].message.tool_calls
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Rome"}, {"city": "Oslo"}]


def test_the_async_client_runs_chats_at_once(server: Live):
    async def ask() -> tuple[list[str], str]:
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            asked = [
                client.chat.completions.create(
                    model=MODEL, messages=user(f"What is the capital of {land}?"), temperature=0
                )
                for land in ("Vietnam", "France", "Japan")
            ]
            replies = await asyncio.gather(*asked)
            stream = await client.completions.create(
                model=MODEL, prompt="37 + 58 =", temperature=0, max_tokens=8, stream=True
            )
            streamed = "".join([chunk.choices[0].text async for chunk in stream])
        return [reply.choices[0].message.content or "" for reply in replies], streamed

    answers, streamed = asyncio.run(ask())
    for city, answer in zip(("Hanoi", "Paris", "Tokyo"), answers):
        assert city in answer
    assert streamed == " 95"


def test_a_call_and_its_result_make_an_answer(client: openai.OpenAI):
    reply = chat(client, ROME, tools=[TOOL])
    (choice,) = reply.choices
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert (call.type, call.function.name) == ("function", "get_temperature")
    city = json.loads(call.function.arguments)["city"]
    result = {"role": "tool", "tool_call_id": call.id, "content": THERE[city]}
    last = chat(client, [*user(ROME), choice.message, result], tools=[TOOL])
    assert last.choices[0].message.content == ROME_ANSWER


def test_parallel_calls_have_ids_of_their_own_and_can_be_switched_off(client: openai.OpenAI):
    calls = chat(client, ROME_AND_OSLO, tools=[TOOL]).choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Rome", "Oslo"]
    assert len({call.id for call in calls}) == 2
    (only,) = chat(client, ROME_AND_OSLO, tools=[TOOL], parallel_tool_calls=False).choices[0].message.tool_calls
    assert json.loads(only.function.arguments) == {"city": "Rome"}


def test_streamed_calls_tell_id_and_name_once_and_arguments_in_fragments(client: openai.OpenAI):
    chunks = list(chat(client, ROME_AND_OSLO, tools=[TOOL], stream=True))
    parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ()]
    for index, city in enumerate(("Rome", "Oslo")):
        first, *more = (part for part in parts if part.index == index)
        assert first.id and first.function.name == "get_temperature"
        assert len(more) > 1 and all(part.id is None and part.function.name is None for part in more)
        arguments = "".join(part.function.arguments for part in (first, *more))
        assert json.loads(arguments) == {"city": city}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_no_call_is_made_with_tool_choice_none(client: openai.OpenAI):
    choice = chat(client, ROME, tools=[TOOL], tool_choice="none").choices[0]
    assert choice.message.tool_calls is None and choice.message.content and choice.finish_reason == "stop"


def test_logprobs_come_with_the_best_tokens(client: openai.OpenAI):
    places = chat(client, CAPITAL, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert "".join(place.token for place in places[:-1]) == CAPITAL_ANSWER
    for place in places:
        best = place.top_logprobs
        assert len(best) == 3 and best[0].logprob >= best[1].logprob >= best[2].logprob
        assert (place.token, place.logprob) == (best[0].token, best[0].logprob)  # temperature 0
    assert bytes(places[0].bytes) == b"The"


def test_completions_have_a_text_and_a_choice_for_each_prompt(client: openai.OpenAI):
    reply = client.completions.create(
        model=MODEL, prompt=["37 + 58 =", "The capital of France is"], temperature=0, max_tokens=16, logprobs=2
    )
    assert [choice.text for choice in reply.choices] == [" 95", " Paris."]
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens and logprobs.tokens[:3] == [" ", "9", "5"]
    assert logprobs.top_logprobs is not None and all(len(best) == 2 for best in logprobs.top_logprobs)


def test_streamed_completions_end_with_their_usage(client: openai.OpenAI):
    *chunks, last = client.completions.create(
        model=MODEL,
        prompt="The capital of France is",
        temperature=0,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == " Paris."
    assert last.choices == [] and last.usage is not None and last.usage.completion_tokens > 1


class get_temperature(BaseModel):
    """The temperature of a city"""

    city: Literal["Oslo", "Hanoi"]


def test_parse_gives_typed_arguments_of_a_pydantic_tool(client: openai.OpenAI):
    tool = openai.pydantic_function_tool(get_temperature)
    reply = client.chat.completions.parse(model=MODEL, messages=user(ROME), tools=[tool], temperature=0)
    (call,) = reply.choices[0].message.tool_calls or ()
    assert isinstance(call.function.parsed_arguments, get_temperature)  # Rome is not offered


class Person(BaseModel):
    name: str
    city: str
    age: int


def test_parse_gives_a_model_of_a_text_that_asks_for_none(client: openai.OpenAI):
    reply = client.chat.completions.parse(model=MODEL, messages=user(TEXT), response_format=Person, temperature=0)
    assert reply.choices[0].message.parsed == Person(**MARIA)
    with client.chat.completions.stream(
        model=MODEL, messages=user(TEXT), response_format=Person, temperature=0
    ) as stream:
        assert any(event.type == "content.delta" for event in stream)
        assert stream.get_final_completion().choices[0].message.parsed == Person(**MARIA)


class Placed(BaseModel, extra="forbid"):
    name: str
    city: Literal["Oslo", "Paris"]


def test_a_schema_is_kept_to_where_the_prompt_asks_for_more(client: openai.OpenAI):
    reply = client.chat.completions.parse(model=MODEL, messages=user(EXTRACT), response_format=Placed, temperature=0)
    assert placed(reply.choices[0].message.content or "")
    for strict in (True, False, None):
        named = {"name": "placed", "schema": PLACED} | ({} if strict is None else {"strict": strict})
        form = {"type": "json_schema", "json_schema": named}
        assert placed(chat(client, EXTRACT, response_format=form).choices[0].message.content)


def test_parse_gives_no_model_where_the_output_is_cut(client: openai.OpenAI):
    with pytest.raises(openai.LengthFinishReasonError) as cut:
        client.chat.completions.parse(
            model=MODEL, messages=user(TEXT), response_format=Person, temperature=0, max_completion_tokens=8
        )
    assert cut.value.completion.choices[0].message.content.startswith('{"name": "Maria')


def test_json_mode_gives_an_object_whatever_is_asked(client: openai.OpenAI):
    content = chat(client, CAPITAL, response_format={"type": "json_object"}).choices[0].message.content
    assert isinstance(json.loads(content), dict)


NUMBERS = {"a": {"const": 1}, "b": {"const": 2}}
PAIR = {"type": "object", "properties": NUMBERS, "required": ["a", "b"], "additionalProperties": False}
HANOI = {"type": "tag", "begin": "<", "content": {"type": "const_string", "value": "Hanoi"}, "end": ">"}
TAGGED = {"structural_tag": {"type": "structural_tag", "format": HANOI}}


@pytest.mark.parametrize("asked, pattern", [
    ({"guided_choice": ["Rome.", "Hanoi."]}, r"Hanoi\."),
    ({"structured_outputs": {"choice": ["Rome.", "Hanoi."]}}, r"Hanoi\."),
    ({"guided_regex": "[0-9]{4} m"}, "[0-9]{4} m"), ({"regex": "[0-9]{4} m"}, "[0-9]{4} m"),
    ({"guided_json": {"enum": ["Hanoi", "Rome"]}}, '"Hanoi"'),
    ({"json_schema": '{"enum": ["Hanoi", "Rome"]}'}, '"Hanoi"'),
    ({"guided_grammar": 'root ::= "It is " [A-Z] [a-z]+ "."'}, "It is Hanoi."),
    ({"ebnf": 'root ::= "It is " [A-Z] [a-z]+ "."', "grammar_backend": "llguidance"}, "It is Hanoi."),
    ({"structured_outputs": {"json": {"const": 7}}}, "7"),
    ({"structured_outputs": {"json_object": True}}, r"\{.*\}"),
    ({"structured_outputs": {"regex": "[0-9]{4} m"}}, "[0-9]{4} m"),
    ({"structured_outputs": {"grammar": 'root ::= "It is " [A-Z] [a-z]+ "."'}}, "It is Hanoi."), (TAGGED, "<Hanoi>"),
    ({"structured_outputs": TAGGED}, "<Hanoi>"),
    ({"response_format": {"type": "structural_tag", "format": HANOI}}, "<Hanoi>"),
    ({"guided_json": PAIR, "guided_whitespace_pattern": ""}, r'\{"a":1,"b":2\}'),
    ({"structured_outputs": {"json": PAIR, "whitespace_pattern": ""}}, r'\{"a":1,"b":2\}'),
    ({"guided_json": PAIR, "guided_decoding_backend": "guidance"}, r'\{"a": 1, "b": 2\}'),
])  # fmt: skip
def test_fields_of_other_servers_constrain_the_output(client: openai.OpenAI, asked: dict[str, Any], pattern: str):
    assert re.fullmatch(pattern, chat(client, CAPITAL, extra_body=asked).choices[0].message.content)


@pytest.mark.parametrize("field", ["guided_decoding_backend", "grammar_backend"])
def test_the_backend_that_is_named_is_the_one_that_constrains(client: openai.OpenAI, field: str):
    lark = {"guided_grammar": 'start: "yes" | "no"'}  # of the three only llguidance reads it
    assert chat(client, CAPITAL, extra_body=lark | {field: "llguidance"}).choices[0].message.content in ("yes", "no")
    for name in ("xgrammar", "outlines"):
        with pytest.raises(openai.BadRequestError, match=name):
            chat(client, CAPITAL, extra_body=lark | {field: name})


def test_a_guided_decoding_backend_that_is_not_known_is_named(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError, match="guided_decoding_backend") as refused:
        chat(client, CAPITAL, extra_body={"guided_regex": "a", "guided_decoding_backend": "other"})
    assert refused.value.param == "guided_decoding_backend"


def test_a_completion_keeps_to_its_format(client: openai.OpenAI):
    reply = client.completions.create(
        model=MODEL, prompt=TEXT, temperature=0, max_tokens=60,
        extra_body={"response_format": {"type": "json_schema", "json_schema": {
            "name": "person", "schema": Person.model_json_schema()}}},
    )  # fmt: skip
    person = json.loads(reply.choices[0].text)
    assert list(person) == ["name", "city", "age"] and isinstance(Person(**person), Person)


@pytest.mark.parametrize("asked, pattern", [
    ({"guided_choice": [" Rome", " Cairo"]}, " (Rome|Cairo)"),
    ({"structured_outputs": {"choice": [" Rome", " Cairo"]}}, " (Rome|Cairo)"),
    ({"guided_regex": "[0-9]{4} m"}, "[0-9]{4} m"), ({"structured_outputs": {"regex": "[0-9]{4} m"}}, "[0-9]{4} m"),
    ({"guided_json": {"enum": ["Cairo", "Rome"]}}, '"(Cairo|Rome)"'),
    ({"structured_outputs": {"json": {"const": 7}}}, "7"),
    ({"guided_grammar": 'root ::= "It is " [A-Z] [a-z]+ "."'}, r"It is [A-Z][a-z]+\."),
    ({"structured_outputs": {"grammar": 'root ::= "It is " [A-Z] [a-z]+ "."'}}, r"It is [A-Z][a-z]+\."),
    ({"response_format": {"type": "json_object"}}, r"\{.*"),
])  # fmt: skip
def test_a_completion_keeps_to_the_fields_of_other_servers(client: openai.OpenAI, asked: dict[str, Any], pattern: str):
    reply = client.completions.create(
        model=MODEL, prompt="The capital of Vietnam is", temperature=0, max_tokens=60, extra_body=asked
    )
    assert re.fullmatch(pattern, reply.choices[0].text)


def test_a_keyword_that_cannot_be_enforced_is_named(client: openai.OpenAI):
    schema = {"type": "array", "uniqueItems": True}
    with pytest.raises(openai.BadRequestError, match="uniqueItems") as refused:
        chat(client, CAPITAL, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    assert refused.value.param == "response_format"


LOOK_TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": LOOK}}


def test_a_required_call_is_made_where_the_model_would_not(client: openai.OpenAI):
    (choice,) = chat(client, CAPITAL, tools=[LOOK_TOOL, TOOL], tool_choice="required", max_tokens=200).choices
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    for call in choice.message.tool_calls:
        arguments = json.loads(call.function.arguments)
        assert (call.function.name, arguments.keys()) in (("look", {"deep", "at"}), ("get_temperature", {"city"}))


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_function_is_called_once_with_arguments_of_its_schema(client: openai.OpenAI, stream: bool):
    named = {"type": "function", "function": {"name": "look"}}
    reply = chat(client, ROME_AND_OSLO, tools=[LOOK_TOOL, TOOL], tool_choice=named, stream=stream)
    if stream:
        parts = [part.function for chunk in reply for part in chunk.choices[0].delta.tool_calls or ()]
        name, text = parts[0].name, "".join(part.arguments for part in parts)
    else:
        (call,) = reply.choices[0].message.tool_calls
        name, text = call.function.name, call.function.arguments
    arguments = json.loads(text)
    assert name == "look" and type(arguments["deep"]) is bool and arguments["at"] in ("sky", "sea")


@pytest.mark.parametrize("name", ["look", "get_temperature"])
def test_one_of_the_allowed_tools_is_called_once(client: openai.OpenAI, name: str):
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": name}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    for asked in (ROME_AND_OSLO, CAPITAL):
        reply = chat(client, asked, tools=[LOOK_TOOL, TOOL], tool_choice=choice, parallel_tool_calls=False)
        assert [call.function.name for call in reply.choices[0].message.tool_calls] == [name]


@pytest.mark.parametrize("name", ["look", "get_temperature"])
def test_the_named_function_is_called_whichever_the_model_would_call(client: openai.OpenAI, name: str):
    named = {"type": "function", "function": {"name": name}}
    for asked in (ROME, CAPITAL):
        (call,) = chat(client, asked, tools=[LOOK_TOOL, TOOL], tool_choice=named).choices[0].message.tool_calls
        assert call.function.name == name


def test_a_strict_tool_is_called_with_arguments_of_its_schema_or_not_at_all(client: openai.OpenAI):
    city = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Hanoi"]}}, "required": ["city"]}
    strict: Any = {"type": "function", "function": {"name": "get_temperature", "strict": True, "parameters": city}}
    (call,) = chat(client, ROME, tools=[strict]).choices[0].message.tool_calls  # about Rome, which is not offered
    assert json.loads(call.function.arguments)["city"] in ("Oslo", "Hanoi")
    assert chat(client, CAPITAL, tools=[strict]).choices[0].message.content == CAPITAL_ANSWER


def test_an_output_is_a_call_or_has_the_format(client: openai.OpenAI):
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": Person.model_json_schema()}}
    (call,) = chat(client, ROME, tools=[TOOL], response_format=form).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    content = chat(client, EXTRACT, tools=[TOOL], response_format=form).choices[0].message.content
    assert json.loads(content) == MARIA


def test_n_outputs_differ_and_a_seed_repeats_them(client: openai.OpenAI):
    options = {"temperature": 1, "n": 3, "max_tokens": 24}
    story = "Tell me a story."
    texts = [choice.message.content for choice in chat(client, story, seed=7, **options).choices]
    assert len(set(texts)) == 3
    assert [choice.message.content for choice in chat(client, story, seed=7, **options).choices] == texts
    assert [choice.message.content for choice in chat(client, story, seed=8, **options).choices] != texts


def test_streamed_choices_carry_their_index(client: openai.OpenAI):
    texts = ["", ""]
    for chunk in chat(client, CAPITAL, n=2, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [CAPITAL_ANSWER] * 2


def test_what_other_servers_clients_send_beside(client: openai.OpenAI):
    body = {"return_token_ids": True, "stream_interval": 4, "include_stop_str_in_output": True}
    options = {"continuous_usage_stats": True}
    chunks = list(chat(client, CAPITAL, stream=True, stream_options=options, extra_body=body, stop=[" is"]))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "The capital of Vietnam is"
    assert chunks[-1].usage.completion_tokens == sum(len(chunk.choices[0].token_ids) for chunk in chunks)
    assert len(chunks) < chunks[-1].usage.completion_tokens + 2
    biased = chat(client, CAPITAL, logit_bias={"50": "-100"}, logprobs=False, top_logprobs=0)
    assert biased.choices[0].message.content == CAPITAL_ANSWER


def test_stop_and_max_tokens_end_the_output(client: openai.OpenAI):
    stopped = chat(client, CAPITAL, stop=[" is"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == ("The capital of Vietnam", "stop")
    cut = chat(client, CAPITAL, max_completion_tokens=3)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 3)


def test_reasoning_comes_beside_the_content(client: openai.OpenAI):
    reply = chat(client, THINK)
    message = reply.choices[0].message
    assert message.content == THOUGHT_ANSWER
    assert message.reasoning_content == message.reasoning and message.reasoning.endswith(THOUGHT)
    assert 0 < reply.usage.completion_tokens_details.reasoning_tokens < reply.usage.completion_tokens
    deltas = [chunk.choices[0].delta for chunk in chat(client, THINK, stream=True)]
    assert (
        "".join(delta.reasoning_content or "" for delta in deltas) == message.reasoning
    )  # no getattr: loops have none
    assert "".join(delta.content or "" for delta in deltas) == THOUGHT_ANSWER
    quiet = chat(client, THINK.split(" Think")[0], reasoning_effort="none").choices[0].message
    assert quiet.reasoning_content is None and "95" in quiet.content


def test_embeddings_are_the_same_as_floats_and_as_base64(client: openai.OpenAI):
    texts = ["A cat sleeps.", "The capital of Vietnam is Hanoi."]
    default = client.embeddings.create(model=MODEL, input=texts)  # the client asks for base64
    floats = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    short = client.embeddings.create(model=MODEL, input=texts[0], dimensions=8)
    assert [row.index for row in default.data] == [0, 1] and default.usage.prompt_tokens > 2
    for row, same in zip(default.data, floats.data):
        assert row.embedding == pytest.approx(same.embedding) and len(row.embedding) == 256
    assert default.data[0].embedding != default.data[1].embedding
    assert len(short.data[0].embedding) == 8


def test_the_served_model_is_listed_and_retrieved(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.id, model.object) == (MODEL, "model")


def test_a_model_that_is_not_served_is_a_not_found_error(client: openai.OpenAI):
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="gpt-4o", messages=user(CAPITAL))
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_a_wrong_field_is_a_bad_request_that_names_it(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError, match=r"top_p is 1\.5") as refused:
        chat(client, CAPITAL, top_p=1.5)
    assert (refused.value.param, refused.value.type) == ("top_p", "invalid_request_error")
    assert refused.value.request_id
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, ROME, tool_choice="required")
    assert refused.value.param == "tool_choice"


def test_a_prompt_beyond_the_context_has_its_code(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, TOO_LONG)
    assert refused.value.code == "context_length_exceeded" and "4096" in refused.value.message


def test_a_wrong_key_is_an_authentication_error(guarded: Live):
    url = guarded.url + "/v1"
    with pytest.raises(openai.AuthenticationError) as refused:
        openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
    assert refused.value.code == "invalid_api_key"
    assert openai.OpenAI(base_url=url, api_key="right", max_retries=0).models.list().data[0].id == MODEL


def test_the_request_id_is_the_client_s_own_or_a_new_one(client: openai.OpenAI):
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=user(CAPITAL), temperature=0, extra_headers={"X-Request-Id": "mine"}
    )
    assert raw.headers["x-request-id"] == "mine" == raw.parse()._request_id
    ids = {chat(client, CAPITAL)._request_id for _ in range(2)}
    assert len(ids) == 2 and None not in ids


def test_closing_a_stream_frees_its_slot(client: openai.OpenAI, server: Live):
    stream = chat(client, CAPITAL, max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    assert server.state()["running_requests"] == 1
    before = server.state()["generated_tokens"]
    stream.close()
    deadline = time.monotonic() + 120
    while server.state()["running_requests"]:
        assert time.monotonic() < deadline
    after = server.state()
    assert after["leased_tokens"] == 0 and after["generated_tokens"] - before < 3000
