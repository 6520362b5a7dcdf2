"""Outputs of LLM keep to what their sampling parameters and tools say."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TEXT = "Text: Maria Lopez is 34 years old. She lives in Lisbon."
ASKED = [{"role": "user", "content": TEXT}]
LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"properties": {"at": {"enum": ["sea", "sky"]}}, "required": ["at"]}},
}
GREEDY = {"temperature": 0, "max_new_tokens": 60}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=8192, num_threads=1, random_seed=1, log_level="error") as made:
        yield made


def text_of(reply: dict[str, Any]) -> str:
    assert reply["meta_info"]["finish_reason"]["type"] == "stop", reply
    return str(reply["text"])


def test_each_prompt_keeps_to_its_own_constraint(llm: LLM) -> None:
    each = [
        {**GREEDY, "regex": "[0-9]{3}-[0-9]{2}"},
        {**GREEDY, "json_schema": PERSON, "temperature": 1.5},
        {**GREEDY, "json_schema": json.dumps(PERSON), "grammar_backend": "llguidance"},
        {**GREEDY, "ebnf": 'root ::= "yes" | "no"'},
    ]
    digits, odd, person, word = map(text_of, llm.generate([TEXT] * 4, each))
    assert re.fullmatch("[0-9]{3}-[0-9]{2}", digits) and word in ("yes", "no")
    for made in (odd, person):
        assert list(json.loads(made)) == ["name", "age"] and json.loads(made)["age"] <= 120


def test_a_stream_grows_to_the_whole_output(llm: LLM) -> None:
    params = {**GREEDY, "json_schema": PERSON}
    *_, last = llm.stream(TEXT, params)
    assert last["text"] == llm.generate(TEXT, params)[0]["text"]


def test_chats_keep_to_a_schema_or_call_what_they_must(llm: LLM) -> None:
    (reply,) = llm.chat(ASKED, {**GREEDY, "json_schema": PERSON})
    assert json.loads(reply["message"]["content"]) == {"name": "Maria Lopez", "age": 34}
    (reply,) = llm.chat(ASKED, GREEDY, tools=[LOOK], tool_choice="required", parallel_tool_calls=False)
    (call,) = reply["message"]["tool_calls"]
    assert (reply["finish_reason"], call["function"]["name"]) == ("tool_calls", "look")
    assert json.loads(call["function"]["arguments"])["at"] in ("sea", "sky")


def test_a_constraint_that_does_not_compile_ends_its_prompt_alone(llm: LLM) -> None:
    wrong, right = llm.generate([TEXT, TEXT], [{**GREEDY, "regex": "(a"}, {**GREEDY, "regex": "a"}])
    ending = wrong["meta_info"]["finish_reason"]
    assert (ending["type"], ending["status_code"]) == ("abort", 400) and "regex" in ending["message"]
    assert text_of(right) == "a"


def test_what_no_backend_could_take_is_refused_at_once(llm: LLM) -> None:
    with pytest.raises(ClientError, match=r"^sampling_params\[1\]\.json_schema is 5, must be"):
        llm.generate([TEXT, TEXT], [None, {"json_schema": 5}])
    with pytest.raises(ClientError, match=r"^sampling_params\.json_schema .* cannot be written as JSON"):
        llm.generate(TEXT, {"json_schema": {"maximum": float("inf")}})
    with pytest.raises(ClientError, match=r"^grammar_backend is 'antlr'"):
        llm.generate(TEXT, grammar_backend="antlr")
