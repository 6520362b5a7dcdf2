"""One program for every backend: turns with a system prompt, gen, select, a dtype, a JSON schema, forks and a join."""

from typing import Any

from ramet import assistant, function, gen, select, system, user

SYSTEM = "You are brief."
QUESTIONS = ("Name a city.", "Is it big?", "How many people live there?", "Its name and country, as JSON.")
FORKS = ("A word for its river.", "A word for its food.")
FACTS = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "country": {"type": "string"}},
    "required": ["name", "country"],
}
CLOSED = {**FACTS, "additionalProperties": False}  # as services want it that take closed objects only
JSON = '{"name": "Paris", "country": "France"}'
SAID = ("Paris", "yes", "2100000", JSON)  # what the prompt has of the model's turns


@function
def interview(s: Any) -> None:
    s += system(SYSTEM)
    s += user(QUESTIONS[0]) + assistant(gen("city", max_tokens=16, stop="."))
    s += user(QUESTIONS[1]) + assistant(select("big", choices=["yes", "no"]))
    s += user(QUESTIONS[2]) + assistant(gen("people", dtype=int, max_tokens=32))
    s += user(QUESTIONS[3]) + assistant(gen("facts", json_schema=FACTS, max_tokens=64))
    forks = s.fork(2)
    forks += [user(text) for text in FORKS]
    forks += assistant(gen("word", max_tokens=8))
    forks.join()


def check(state: Any) -> None:
    """Of a service that answered as SAID, and to the forks with Seine and cheese."""
    assert state.error() is None
    assert state["city"] == "Paris"
    assert state["big"] == "yes"
    assert state["people"] == 2100000
    assert state["facts"] == JSON
    assert state["word"] == ["Seine", "cheese"]
    assert [message["role"] for message in state.messages()] == ["system", *["user", "assistant"] * 4]


def turns(num: int) -> list[tuple[str, str]]:
    """The chat before the model's answer number `num`, without the system's turn."""
    said: list[tuple[str, str]] = []
    for question, answer in list(zip(QUESTIONS, SAID, strict=True))[:num]:
        said += [("user", question), ("assistant", answer)]
    return [*said, ("user", QUESTIONS[num])] if num < len(QUESTIONS) else said
