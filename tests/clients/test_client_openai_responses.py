"""openai-python's responses: created, streamed, continued, with tools, stored and deleted."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from asked import CAPITAL, CAPITAL_ANSWER, CITY, MODEL, ROME, ROME_ANSWER, THERE, THINK, THOUGHT, THOUGHT_ANSWER
from live import Live
from openai.types.responses import ResponseInputMessageItem

TOOL = {
    "type": "function",
    "name": "get_temperature",
    "description": "The temperature of a city",
    "parameters": CITY,
    "strict": False,
}


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


def test_a_schema_for_the_text_is_refused_by_name_until_it_is_built(client: openai.OpenAI):
    form = {"type": "json_schema", "name": "city", "schema": CITY}
    with pytest.raises(openai.BadRequestError, match="not built") as refused:
        respond(client, CAPITAL, text={"format": form})
    assert refused.value.param == "text.format"
