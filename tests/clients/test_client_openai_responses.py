"""openai-python's responses: created, streamed, continued, with tools, stored and deleted."""

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from asked import (
    CAPITAL,
    CAPITAL_ANSWER,
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
    THINK,
    THOUGHT,
    THOUGHT_ANSWER,
    placed,
)
from live import Live
from openai.types.responses import ResponseInputMessageItem
from pydantic import BaseModel

TOOL = {
    "type": "function",
    "name": "get_temperature",
    "description": "The temperature of a city",
    "parameters": CITY,
    "strict": False,
}


LOOK_TOOL = {"type": "function", "name": "look", "parameters": LOOK, "strict": False}


@pytest.fixture
def client(server: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def respond(client: openai.OpenAI, asked: Any, **options: Any) -> Any:
    return client.responses.create(model=MODEL, input=asked, temperature=0, **options)


def test_a_response_has_its_text_and_usage(client: openai.OpenAI):
    response = respond(client, CAPITAL)
    assert (response.output_text, response.status) == (CAPITAL_ANSWER, "completed")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_streamed_response_is_the_whole_one(client: openai.OpenAI):
    events = list(respond(client, CAPITAL, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == CAPITAL_ANSWER
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert events[-1].response.output_text == CAPITAL_ANSWER


def test_the_stream_helper_tells_reasoning_and_text(client: openai.OpenAI):
    with client.responses.stream(model=MODEL, input=THINK, temperature=0) as stream:
        thought = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
        final = stream.get_final_response()
    assert thought.endswith(THOUGHT)
    reasoning, message = final.output
    assert (reasoning.type, message.type, final.output_text) == ("reasoning", "message", THOUGHT_ANSWER)
    assert reasoning.content[0].text == thought


def test_a_response_goes_on_from_the_one_before(client: openai.OpenAI):
    first = respond(client, "My name is Anna.")
    second = respond(client, "What is my name?", previous_response_id=first.id)
    assert "Anna" in second.output_text and second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens


def test_a_call_and_its_output_make_an_answer(client: openai.OpenAI):
    first = respond(client, ROME, tools=[TOOL])
    (call,) = first.output
    assert (call.type, call.name, call.status) == ("function_call", "get_temperature", "completed")
    output = THERE[json.loads(call.arguments)["city"]]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": output}
    assert respond(client, [result], previous_response_id=first.id, tools=[TOOL]).output_text == ROME_ANSWER


def test_a_streamed_call_has_its_arguments_in_fragments(client: openai.OpenAI):
    events = list(respond(client, ROME, tools=[TOOL], stream=True))
    fragments = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert len(fragments) > 1 and "".join(fragments) == done.arguments
    assert json.loads(done.arguments) == {"city": "Rome"}


def test_a_stored_response_is_retrieved_listed_and_deleted(client: openai.OpenAI):
    response = respond(client, CAPITAL)
    assert client.responses.retrieve(response.id).output_text == CAPITAL_ANSWER
    (item,) = client.responses.input_items.list(response.id)
    assert isinstance(item, ResponseInputMessageItem) and item.content[0].text == CAPITAL
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError) as gone:
        client.responses.retrieve(response.id)
    assert gone.value.code == "response_not_found"
    with pytest.raises(openai.NotFoundError) as gone:
        respond(client, CAPITAL, previous_response_id=response.id)
    assert gone.value.param == "previous_response_id"


def test_a_response_that_is_not_to_be_stored_is_not(client: openai.OpenAI):
    response = respond(client, CAPITAL, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


class Person(BaseModel):
    name: str
    city: str
    age: int


def test_parse_gives_a_model_of_a_text_that_asks_for_none(client: openai.OpenAI):
    response = client.responses.parse(model=MODEL, input=TEXT, text_format=Person, temperature=0)
    assert response.output_parsed == Person(**MARIA) and response.text.format.type == "json_schema"
    with client.responses.stream(model=MODEL, input=TEXT, text_format=Person, temperature=0) as stream:
        assert any(event.type == "response.output_text.delta" for event in stream)
        assert stream.get_final_response().output_parsed == Person(**MARIA)


@pytest.mark.parametrize("strict", [True, False])
def test_a_schema_is_kept_to_where_the_prompt_asks_for_more(client: openai.OpenAI, strict: bool):
    form = {"type": "json_schema", "name": "placed", "schema": PLACED, "strict": strict}
    assert placed(respond(client, EXTRACT, text={"format": form}).output_text)


def test_an_output_that_is_cut_inside_its_format_is_incomplete(client: openai.OpenAI):
    form = {"type": "json_schema", "name": "person", "schema": Person.model_json_schema(), "strict": True}
    response = respond(client, TEXT, text={"format": form}, max_output_tokens=8)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output_text.startswith('{"name": "Maria')


@pytest.mark.parametrize("asked, pattern", [
    ({"structured_outputs": {"regex": "[0-9]{4} m"}}, "[0-9]{4} m"), ({"regex": "[0-9]{4} m"}, "[0-9]{4} m"),
    ({"structured_outputs": {"choice": ["Rome.", "Hanoi."]}}, r"Hanoi\."),
])  # fmt: skip
def test_fields_of_other_servers_constrain_the_output(client: openai.OpenAI, asked: dict[str, Any], pattern: str):
    assert re.fullmatch(pattern, respond(client, CAPITAL, extra_body=asked).output_text)


def test_json_mode_gives_an_object_whatever_is_asked(client: openai.OpenAI):
    response = respond(client, CAPITAL, text={"format": {"type": "json_object"}})
    assert isinstance(json.loads(response.output_text), dict)


@pytest.mark.parametrize("choice", [
    "required", {"type": "function", "name": "get_temperature"},
    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_temperature"}]},
])  # fmt: skip
def test_a_forced_call_is_made_where_the_model_would_not(client: openai.OpenAI, choice: Any):
    (call,) = respond(client, CAPITAL, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False).output
    assert (call.type, call.name, call.status) == ("function_call", "get_temperature", "completed")
    assert json.loads(call.arguments).keys() == {"city"}


def test_parallel_calls_can_be_switched_off(client: openai.OpenAI):
    for parallel, cities in ((True, ["Rome", "Oslo"]), (False, ["Rome"])):
        response = respond(client, ROME_AND_OSLO, tools=[TOOL], parallel_tool_calls=parallel)
        assert [json.loads(call.arguments)["city"] for call in response.output] == cities


@pytest.mark.parametrize("name", ["look", "get_temperature"])
@pytest.mark.parametrize("allowed", [False, True])
def test_the_chosen_tool_is_called_whichever_the_model_would_call(client: openai.OpenAI, name: str, allowed: bool):
    one = {"type": "function", "name": name}
    choice = {"type": "allowed_tools", "mode": "required", "tools": [one]} if allowed else one
    for asked in (ROME, CAPITAL):
        response = respond(client, asked, tools=[LOOK_TOOL, TOOL], tool_choice=choice)
        calls = [item for item in response.output if item.type != "reasoning"]
        assert {call.name for call in calls} == {name}


def test_a_strict_tool_is_called_with_arguments_of_its_schema(client: openai.OpenAI):
    city = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Hanoi"]}}, "required": ["city"]}
    (call,) = respond(client, ROME, tools=[{**TOOL, "parameters": city, "strict": True}]).output
    assert json.loads(call.arguments)["city"] in ("Oslo", "Hanoi")  # Rome is not offered


def test_a_forced_tool_that_is_not_strict_has_arguments_of_its_schema(client: openai.OpenAI):
    tool = {"type": "function", "name": "keep", "parameters": PLACED, "strict": False}
    response = respond(client, TEXT, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    (call,) = [item for item in response.output if item.type != "reasoning"]
    assert placed(call.arguments)


def test_parse_gives_typed_arguments_of_a_strict_tool(client: openai.OpenAI):
    tool: Any = openai.pydantic_function_tool(Person, name="keep", description="Keeps a person")
    response = client.responses.parse(
        model=MODEL, input=TEXT, tools=[tool], tool_choice="required", temperature=0,
        parallel_tool_calls=False,
    )  # fmt: skip
    (call,) = response.output
    assert call.parsed_arguments == Person(**MARIA)
