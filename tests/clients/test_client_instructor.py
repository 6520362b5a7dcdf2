"""instructor: a pydantic object from the model's JSON, in the mode that asks in words and in those that constrain."""

import asyncio
from contextlib import suppress
from typing import Any, Literal

import instructor
import openai
import pytest
from asked import CAPITAL, EXTRACT, MARIA, MODEL, TEXT, user
from instructor.core.exceptions import IncompleteOutputException
from live import Live
from pydantic import BaseModel, Field


class Person(BaseModel):
    name: str
    city: str
    age: int


class Odd(BaseModel):
    kind: Literal["round", "flat"]
    size: int = Field(ge=1, le=9)


class Loose(BaseModel):
    title: str | None = None


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


# the mode -> the field that constrains
CONSTRAINED = {
    instructor.Mode.TOOLS: "tool_choice",
    instructor.Mode.JSON: "response_format",
    instructor.Mode.JSON_SCHEMA: "response_format",
}


@pytest.mark.parametrize("mode", CONSTRAINED)
def test_a_mode_gives_a_valid_object_where_its_prompt_alone_gives_a_word(server: Live, mode: instructor.Mode):
    """Mode JSON holds the output to an object only: that it is a Person comes from the prompt."""
    client = patched(server, mode)
    sent: dict[str, Any] = {}
    client.on("completion:kwargs", lambda **options: sent.update(options))
    asked = user(
        TEXT + " In which city does she live?"
    )  # after TEXT alone the schema in the prompt is answered in JSON
    person = client.chat.completions.create(
        model=MODEL, response_model=Person, messages=asked, temperature=0, max_retries=0
    )
    assert person.model_dump() == MARIA
    del sent[CONSTRAINED[mode]]
    free = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0).chat.completions.create(**sent)
    assert (free.choices[0].message.content, free.choices[0].message.tool_calls) == ("Lisbon", None)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_a_schema_is_kept_where_the_model_would_not(server: Live, mode: instructor.Mode):
    create = patched(server, mode).chat.completions.create
    odd = create(model=MODEL, response_model=Odd, messages=user("Tell me a story."), temperature=0, max_retries=0)
    assert odd.kind in ("round", "flat") and 1 <= odd.size <= 9


@pytest.mark.parametrize("mode", [instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA])
def test_an_object_is_valid_however_wild_the_words_in_it(server: Live, mode: instructor.Mode):
    create = patched(server, mode).chat.completions.create
    made = []
    for seed in range(8):
        wild = {"temperature": 1.5, "top_p": 1, "seed": seed, "max_tokens": 500}
        with suppress(IncompleteOutputException):  # some go on for very long
            made.append(create(model=MODEL, response_model=Loose, messages=user(CAPITAL), max_retries=0, **wild))
    assert len(made) >= 4


def test_a_partial_object_grows_to_the_whole_one(server: Live):
    create = patched(server, instructor.Mode.JSON_SCHEMA).chat.completions.create_partial
    *some, last = create(model=MODEL, response_model=Person, messages=user(TEXT), temperature=0)
    assert last.model_dump() == MARIA and some[0].age is None


def test_an_output_that_is_cut_is_instructor_s_own_error(server: Live):
    create = patched(server, instructor.Mode.JSON_SCHEMA).chat.completions.create
    with pytest.raises(IncompleteOutputException) as cut:
        create(model=MODEL, response_model=Person, messages=user(TEXT), temperature=0, max_retries=0, max_tokens=8)
    assert cut.value.last_completion.choices[0].message.content.startswith('{"name": "Maria')
