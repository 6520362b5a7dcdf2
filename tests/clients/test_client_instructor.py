"""instructor: a pydantic object from the model's JSON, in the mode that asks in words; others are refused by name."""

import asyncio

import instructor
import openai
import pytest
from asked import EXTRACT, MODEL, user
from instructor.core.exceptions import InstructorRetryException
from live import Live
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    city: str
    age: int


MARIA = {"name": "Maria Lopez", "city": "Lisbon", "age": 34}


def patched(server: Live, mode: instructor.Mode) -> instructor.Instructor:
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    return instructor.from_openai(client, mode=mode)


def test_words_alone_give_a_validated_object(server: Live):
    person, completion = patched(server, instructor.Mode.MD_JSON).chat.completions.create_with_completion(
        model=MODEL, response_model=Person, messages=user(EXTRACT), temperature=0, max_retries=0
    )
    assert isinstance(person, Person) and person.model_dump() == MARIA
    assert completion.usage.completion_tokens > 10


def test_the_async_client_gives_the_same_object(server: Live):
    async def ask() -> Person:
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            create = instructor.from_openai(client, mode=instructor.Mode.MD_JSON).chat.completions.create
            return await create(
                model=MODEL, response_model=Person, messages=user(EXTRACT), temperature=0, max_retries=0
            )

    assert asyncio.run(ask()).model_dump() == MARIA


@pytest.mark.parametrize(
    ("mode", "field"),
    [
        (instructor.Mode.TOOLS, "tool_choice"),
        (instructor.Mode.JSON, "response_format"),
        (instructor.Mode.JSON_SCHEMA, "response_format"),
    ],
)
def test_a_mode_that_constrains_says_which_field_is_not_built(server: Live, mode: instructor.Mode, field: str):
    with pytest.raises(InstructorRetryException, match="not built") as refused:
        patched(server, mode).chat.completions.create(
            model=MODEL, response_model=Person, messages=user(EXTRACT), temperature=0, max_retries=0
        )
    cause = refused.value.__cause__
    while cause is not None and not isinstance(cause, openai.BadRequestError):
        cause = cause.__cause__
    assert cause is not None and cause.param == field
