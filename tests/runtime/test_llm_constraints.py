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
TEMPERATURE = {
    "type": "function",
    "function": {
        "name": "get_temperature",
        "description": "The temperature of a city",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Lima"]}}, "required": ["city"]},
    },
}
ARGUMENTS = {"look": ("at", ("sea", "sky")), "get_temperature": ("city", ("Oslo", "Lima"))}
CAPITAL = [{"role": "user", "content": "What is the capital of Peru?"}]
ROME = [{"role": "user", "content": "What is the temperature in Rome?"}]
GREEDY = {"temperature": 0, "max_new_tokens": 60}
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "tag",
        "begin": "<is>",
        "content": {"type": "regex", "pattern": "[A-Z][a-z]{2,9}"},
        "end": "</is>",
    },
}
KEPT: list[tuple[dict[str, Any], str]] = [
    ({"regex": "[0-9]{3}-[0-9]{2}"}, "[0-9]{3}-[0-9]{2}"),
    ({"json_schema": {"enum": ["tall", 7]}}, '"tall"|7'),
    ({"json_schema": '{"enum": ["tall", 7]}'}, '"tall"|7'),
    ({"ebnf": 'root ::= "It is " [A-Z] [a-z]{2,9} "."'}, r"It is [A-Z][a-z]{2,9}\."),
    ({"structural_tag": TAG}, "<is>[A-Z][a-z]{2,9}</is>"),
    ({"structural_tag": json.dumps(TAG)}, "<is>[A-Z][a-z]{2,9}</is>"),
]


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


@pytest.mark.parametrize("asked, kept", KEPT)
def test_texts_and_chats_keep_to_it_where_the_model_would_not(llm: LLM, asked: dict[str, Any], kept: str) -> None:
    def answers(params: dict[str, Any]) -> list[str]:
        (text,), (chat,) = llm.generate(TEXT, params), llm.chat(ASKED, params)
        return [text["text"], chat["message"]["content"]]

    held, free = answers({**GREEDY, **asked}), answers(GREEDY)
    assert [bool(re.fullmatch(kept, each)) for each in held + free] == [True, True, False, False], (held, free)


def test_any_object_is_one_where_the_model_gives_a_word(llm: LLM) -> None:
    (held,), (free,) = llm.chat(ASKED, {**GREEDY, "json_schema": {"type": "object"}}), llm.chat(ASKED, GREEDY)
    assert isinstance(json.loads(held["message"]["content"]), dict)
    with pytest.raises(json.JSONDecodeError):
        json.loads(free["message"]["content"])


LARK = {"ebnf": 'start: "yes" | "no"'}
GBNF = {"ebnf": 'root ::= "yes" | "no"'}
BACKENDS: list[tuple[dict[str, str], str, str | None]] = [  # the error, where it cannot take the grammar
    (LARK, "xgrammar", "xgrammar reads GBNF"),
    (GBNF, "outlines", "which outlines does not enforce"),
    (LARK, "llguidance", None),
    (GBNF, "xgrammar", None),
]


@pytest.mark.parametrize("beside", [False, True])
def test_each_prompt_is_kept_by_the_backend_that_it_names(llm: LLM, beside: bool) -> None:
    params = [{**GREEDY, **asked} for asked, _, _ in BACKENDS]
    names = [name for _, name, _ in BACKENDS]
    if beside:
        replies = llm.generate([TEXT] * 4, params, grammar_backend=names)
    else:
        replies = llm.generate([TEXT] * 4, [{**one, "grammar_backend": name} for one, name in zip(params, names)])
    for reply, (_, _, refused) in zip(replies, BACKENDS):
        if refused is None:
            assert text_of(reply) in ("yes", "no")
        else:
            assert refused in reply["meta_info"]["finish_reason"]["message"]


def test_a_stream_grows_to_the_whole_output(llm: LLM) -> None:
    params = {**GREEDY, "json_schema": PERSON}
    *_, last = llm.stream(TEXT, params)
    assert last["text"] == llm.generate(TEXT, params)[0]["text"] and list(json.loads(last["text"])) == ["name", "age"]


def test_chats_keep_to_a_schema_or_call_what_they_must(llm: LLM) -> None:
    (reply,) = llm.chat(ASKED, {**GREEDY, "json_schema": PERSON})
    assert json.loads(reply["message"]["content"]) == {"name": "Maria Lopez", "age": 34}
    (reply,) = llm.chat(ASKED, GREEDY, tools=[LOOK], tool_choice="required", parallel_tool_calls=False)
    (call,) = reply["message"]["tool_calls"]
    assert (reply["finish_reason"], call["function"]["name"]) == ("tool_calls", "look")
    assert json.loads(call["function"]["arguments"])["at"] in ("sea", "sky")


def calls_of(llm: LLM, asked: list[dict[str, Any]], choice: Any, tools: list[Any], **options: Any) -> list[Any]:
    (reply,) = llm.chat(asked, GREEDY, tools=tools, tool_choice=choice, **options)
    return [call["function"] for call in reply["message"].get("tool_calls") or ()]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_named_tool_is_called_with_arguments_of_its_schema(llm: LLM, name: str) -> None:
    one = {"type": "function", "function": {"name": name}}
    key, values = ARGUMENTS[name]
    for asked, likes in ((CAPITAL, False), (ROME, True)):
        free = calls_of(llm, asked, "auto", [LOOK, TEMPERATURE])
        assert bool(free) == likes and all(json.loads(call["arguments"]).get(key) not in values for call in free)
        for choice in (one, {"type": "allowed_tools", "mode": "required", "tools": [one]}):
            (call,) = calls_of(llm, asked, choice, [LOOK, TEMPERATURE], parallel_tool_calls=False)
            assert call["name"] == name and json.loads(call["arguments"])[key] in values


def test_a_required_call_is_made_where_the_model_would_not(llm: LLM) -> None:
    assert calls_of(llm, CAPITAL, None, [LOOK, TEMPERATURE]) == []
    calls = calls_of(llm, CAPITAL, "required", [LOOK, TEMPERATURE])
    assert calls
    for call in calls:
        key, values = ARGUMENTS[call["name"]]
        assert json.loads(call["arguments"])[key] in values


def test_one_call_is_made_where_calls_are_not_parallel(llm: LLM) -> None:
    asked = [
        {"role": "user", "content": "Two things. What is the temperature in Rome? What is the temperature in Oslo?"}
    ]
    for parallel, cities in ((True, ["Rome", "Oslo"]), (False, ["Rome"])):
        calls = calls_of(llm, asked, None, [TEMPERATURE], parallel_tool_calls=parallel)
        assert [json.loads(call["arguments"])["city"] for call in calls] == cities


def test_a_strict_tool_is_called_with_arguments_of_its_schema(llm: LLM) -> None:
    strict = {**TEMPERATURE, "function": {**TEMPERATURE["function"], "strict": True}}
    (free,), (held,) = (calls_of(llm, ROME, None, [tool]) for tool in (TEMPERATURE, strict))
    assert json.loads(free["arguments"])["city"] == "Rome" and json.loads(held["arguments"])["city"] in ("Oslo", "Lima")


def test_a_constraint_that_does_not_compile_ends_its_prompt_alone(llm: LLM) -> None:
    wrong, right = llm.generate([TEXT, TEXT], [{**GREEDY, "regex": "(a"}, {**GREEDY, "regex": "a"}])
    ending = wrong["meta_info"]["finish_reason"]
    assert (ending["type"], ending["status_code"]) == ("abort", 400) and "regex" in ending["message"]
    assert text_of(right) == "a"


class Text(str):
    pass


@pytest.mark.parametrize("params", [
    {"regex": Text("ab")}, {"json_schema": Text('{"const":"ab"}')}, {"json_schema": {Text("const"): Text("ab")}},
    {"ebnf": Text('root ::= "ab"')},
])  # fmt: skip
def test_texts_of_a_program_may_be_of_a_subclass(llm: LLM, params: dict[str, Any]) -> None:
    (reply,) = llm.generate(Text(TEXT), params)
    assert text_of(reply).strip('"') == "ab"


def test_texts_of_a_chat_may_be_of_a_subclass(llm: LLM) -> None:
    said = [llm.chat([{"role": "user", "content": text("Hello")}], {"max_new_tokens": 4, "temperature": 0},
                     chat_template_kwargs={"a": text("b"), "c": None}) for text in (str, Text)]  # fmt: skip
    assert said[0][0]["message"] == said[1][0]["message"]


def test_what_no_backend_could_take_is_refused_at_once(llm: LLM) -> None:
    with pytest.raises(ClientError, match=r"^sampling_params\.json_schema is \[0, 1, 2\], must be a string"):
        llm.generate(TEXT, {"json_schema": range(3)})
    with pytest.raises(ClientError, match=r"^sampling_params\[1\]\.json_schema is 5, must be"):
        llm.generate([TEXT, TEXT], [None, {"json_schema": 5}])
    with pytest.raises(ClientError, match=r"^sampling_params\.json_schema .* cannot be written as JSON"):
        llm.generate(TEXT, {"json_schema": {"maximum": float("inf")}})
    with pytest.raises(ClientError, match=r"^grammar_backend is 'antlr'"):
        llm.generate(TEXT, grammar_backend="antlr")
