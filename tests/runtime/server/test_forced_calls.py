"""Tools that must be called, or whose calls keep to a schema, become a constraint in the format of the calls."""

import asyncio
import json
from typing import Any

import pytest

from ramet.ipc.messages import Finish, Generate
from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.intake.chat import Style
from tests.fakes.server import Served, served

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OTHER = {"properties": {"x": {"type": "integer"}}}
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
ANY = {"type": "object"}
SAID = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
# name, schema, strict
WEATHER, SEARCH, TIME = ("weather", SCHEMA, None), ("search", OTHER, None), ("time", None, None)
Tool = tuple[str, Any, bool | None]


def body_of(path: str, tools: list[Tool], **more: Any) -> dict[str, Any]:
    """As each surface writes its tools."""
    named = [{"name": name, "strict": strict} for name, _, strict in tools]
    schemas = [schema for _, schema, _ in tools]
    match path:
        case "/v1/chat/completions":
            functions = [{**each, "parameters": schema} for each, schema in zip(named, schemas)]
            return {"messages": [USER], "tools": [{"type": "function", "function": each} for each in functions], **more}
        case "/v1/responses":
            functions = [{**each, "type": "function", "parameters": schema} for each, schema in zip(named, schemas)]
            return {"input": "hi", "tools": functions, **more}
    inputs = [{**each, "input_schema": schema} for each, schema in zip(named, schemas)]
    return {"messages": [USER], "max_tokens": 99, "tools": inputs, **more}


def call(name: str, schema: Any) -> dict[str, Any]:
    """As Hermes writes it."""
    begin = f'<tool_call>\n{{"name": "{name}", "arguments": '
    content = {"type": "json_schema", "json_schema": schema}
    return {"type": "tag", "begin": begin, "content": content, "end": "}\n</tool_call>"}


def forced(*calls: dict[str, Any], single: bool = False) -> dict[str, Any]:
    return {
        "type": "tags_with_separator",
        "tags": list(calls),
        "separator": "\n",
        "at_least_one": True,
        "stop_after_first": single,
    }


def free(*calls: dict[str, Any], single: bool = False) -> dict[str, Any]:
    return {
        "type": "triggered_tags",
        "triggers": ["<tool_call>"],
        "tags": list(calls),
        "at_least_one": False,
        "stop_after_first": single,
    }


async def constraint_of(server: Served, path: str, body: dict[str, Any]) -> Constraint | None:
    server.engine.says = [SAID]
    status, reply = await server.post(path, body)
    assert status == 200, reply
    found: Constraint | None = server.engine.of_type(Generate)[-1].spec.constraint
    return found


def form_of(constraint: Constraint | None) -> Any:
    assert constraint is not None and (constraint.kind, constraint.place) == (ConstraintKind.STRUCTURAL_TAG, "tools")
    tag = json.loads(constraint.text)
    assert tag.pop("type") == "structural_tag" and tag.keys() == {"format"}
    return tag["format"]


EMPTY = call("time", {"type": "object", "properties": {}})  # what a template gets of Anthropic's
ALL = [call("weather", SCHEMA), call("search", {**OTHER, "type": "object"}), call("time", NO_ARGUMENTS)]
ALLOWED = {"mode": "required", "tools": [{"type": "function", "name": "search"}, {"type": "function", "name": "time"}]}
ONE_AT_MOST = {"parallel_tool_calls": False}
FORCED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (CHAT, {"tool_choice": "required"}, forced(*ALL)),
    (RESPONSES, {"tool_choice": "required"}, forced(*ALL)),
    (MESSAGES, {"tool_choice": {"type": "any"}}, forced(*ALL[:2], EMPTY)),
    (CHAT, {"tool_choice": "required", **ONE_AT_MOST}, forced(*ALL, single=True)),
    (RESPONSES, {"tool_choice": "required", **ONE_AT_MOST}, forced(*ALL, single=True)),
    (
        MESSAGES,
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        forced(*ALL[:2], EMPTY, single=True),
    ),
    (CHAT, {"tool_choice": {"type": "function", "function": {"name": "weather"}}}, forced(ALL[0], single=True)),
    (RESPONSES, {"tool_choice": {"type": "function", "name": "weather"}}, forced(ALL[0], single=True)),
    (MESSAGES, {"tool_choice": {"type": "tool", "name": "weather"}}, forced(ALL[0], single=True)),
    (CHAT, {"tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED}}, forced(*ALL[1:])),
    (RESPONSES, {"tool_choice": {"type": "allowed_tools", **ALLOWED}}, forced(*ALL[1:])),
]


@pytest.mark.parametrize("path, choice, form", FORCED, ids=[f"{path} {choice}"[:90] for path, choice, _ in FORCED])
def test_a_forced_call_is_one_of_the_offered_with_arguments_of_its_schema(
    path: str, choice: dict[str, Any], form: dict[str, Any]
) -> None:
    async def check(server: Served) -> None:
        assert form_of(await constraint_of(server, path, body_of(path, [WEATHER, SEARCH, TIME], **choice))) == form

    served(check)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_calls_of_strict_tools_keep_to_their_schema_also_where_none_is_forced(path: str) -> None:
    async def check(server: Served) -> None:
        tools = [("weather", SCHEMA, True), ("search", OTHER, False)]
        calls = [call("weather", SCHEMA), call("search", ANY)]
        assert form_of(await constraint_of(server, path, body_of(path, tools))) == free(*calls)
        one = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}} if path == MESSAGES else ONE_AT_MOST
        assert form_of(await constraint_of(server, path, body_of(path, tools, **one))) == free(*calls, single=True)

    served(check)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_other_tools_are_called_without_a_constraint(path: str) -> None:
    async def check(server: Served) -> None:
        assert await constraint_of(server, path, body_of(path, [WEATHER, SEARCH])) is None
        strict = [("weather", SCHEMA, True)]
        none = {"type": "none"} if path == MESSAGES else "none"
        assert await constraint_of(server, path, body_of(path, strict, tool_choice=none)) is None

    served(check)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_the_backend_of_a_request_is_that_of_its_calls(path: str) -> None:
    async def check(server: Served) -> None:
        body = body_of(path, [("weather", SCHEMA, True)], grammar_backend="xgrammar")
        found = await constraint_of(server, path, body)
        assert found is not None and found.backend == "xgrammar"

    served(check)


ANSWER = {"type": "object", "properties": {"answer": {"type": "integer"}}}
ANSWERS = [
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER}}}),
    (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "a", "schema": ANSWER}}}),
    (MESSAGES, {"output_format": {"type": "json_schema", "schema": ANSWER}}),
    (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": ANSWER}}}),
]


@pytest.mark.parametrize("path, answer", ANSWERS)
def test_an_output_has_the_format_of_an_answer_or_is_calls(path: str, answer: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        either = {"type": "or", "elements": [forced(call("weather", ANY)), {
            "type": "json_schema", "json_schema": ANSWER}]}  # fmt: skip
        assert form_of(await constraint_of(server, path, body_of(path, [WEATHER], **answer))) == either
        must = {"type": "any"} if path == MESSAGES else "required"
        found = await constraint_of(server, path, body_of(path, [WEATHER], **answer, tool_choice=must))
        assert form_of(found) == forced(call("weather", SCHEMA))

    served(check)


@pytest.mark.parametrize("asked, field", [
    ({"regex": "a"}, "regex"), ({"guided_choice": ["a"]}, "guided_choice"), ({"json_schema": {}}, "json_schema"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}}, "response_format"),
])  # fmt: skip
@pytest.mark.parametrize("choice, by", [("auto", "tools may be called"), ("required", "tool_choice forces a call")])
def test_any_other_constraint_beside_tools_is_refused_with_both_names(
    asked: dict[str, Any], field: str, choice: str, by: str
) -> None:
    async def check(server: Served) -> None:
        body = body_of(CHAT, [WEATHER], tool_choice=choice, **asked)
        status, reply = await server.post(CHAT, body)
        assert status == 400 and reply["error"]["message"].startswith(f"{field} is set, but {by}"), reply
        assert not server.engine.sent
        found = await constraint_of(server, CHAT, {**body, "tool_choice": "none"})
        assert found is not None and found.place == field

    served(check)


BAD_TOOLS: list[tuple[str, list[Tool], str]] = [
    ("hermes", [WEATHER, WEATHER], "tools has 'weather' twice"),
    ("hermes", [("f", {"type": "string"}, None)], "tools has 'f', whose arguments are of type 'string'"),
    ("hermes", [("f", {"enum": ["x" * 300_000]}, None)], "tools has 300"),
    ("hermes", [("f", {"const": "\0"}, None)], "tools has a NUL"),
    ("pythonic", [WEATHER, ("f", {"properties": {"a": {"type": "string", "pattern": "x"}}}, None)],
        "tools has 'f', whose properties.a.pattern is set: calls that are written in Python"),
]  # fmt: skip


@pytest.mark.parametrize("parser, tools, message", BAD_TOOLS, ids=[message for _, _, message in BAD_TOOLS])
def test_tools_that_no_call_can_be_held_to_are_refused(parser: str, tools: list[Tool], message: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(CHAT, body_of(CHAT, tools, tool_choice="required"))
        assert status == 400 and reply["error"]["message"].startswith(message), reply
        assert f"--tool-call-parser {parser}" in reply["error"]["message"] or parser == "hermes"
        assert not server.engine.sent

    served(check, style=Style(parser, "qwen3"))


SCHEMA_FIELDS = {CHAT: "function.parameters", RESPONSES: "parameters", MESSAGES: "input_schema"}
PLACES = {
    "hermes": "#/format/tags/1/content",
    "mistral": "#/format/tags/0/content/tags/1/content",
    "deepseek": "#/format/tags/0/content/tags/3/content",
}


@pytest.mark.parametrize("path", SCHEMA_FIELDS)
@pytest.mark.parametrize("parser", PLACES)
def test_what_is_wrong_with_a_schema_is_said_at_the_tool_that_has_it(path: str, parser: str) -> None:
    async def check(server: Served) -> None:
        async def refuse() -> None:
            (sent,) = await server.engine.saw(Generate)
            fact = f"{PLACES[parser]}/json_schema: #/properties/x/not: llguidance does not enforce 'not'"
            finish = Finish.abort(sent.spec.constraint.place, fact)
            server.engine.close(sent.uids[0], finish)

        refusing = asyncio.create_task(refuse())
        body = body_of(path, [WEATHER, ("search", {"properties": {"x": {"not": {}}}}, True)])
        status, reply = await server.post(path, body)
        await refusing
        message = f"tools[1].{SCHEMA_FIELDS[path]} #/properties/x/not: llguidance does not enforce 'not'"
        assert (status, reply["error"]["message"]) == (400, message)

    served(check, auto=False, style=Style(parser, None))


def test_an_answer_beside_tools_is_refused_where_it_could_be_read_as_a_call() -> None:
    async def check(server: Served) -> None:
        body = body_of(CHAT, [WEATHER], response_format={"type": "json_object"})
        status, reply = await server.post(CHAT, body)
        assert status == 400 and reply["error"]["message"].startswith("tools cannot stand beside an answer in JSON")

    served(check, style=Style("llama3-json", None))


def test_the_tokens_of_a_prompt_are_counted_whatever_must_be_called() -> None:
    async def check(server: Served) -> None:
        body = body_of(MESSAGES, [WEATHER], tool_choice={"type": "any"})
        body.pop("max_tokens")
        assert (await server.post(f"{MESSAGES}/count_tokens", body))[0] == 200
        status, reply = await server.post(f"{MESSAGES}/count_tokens", body | {"tool_choice": {"type": "tool"}})
        assert status == 400 and "tool_choice" in reply["error"]["message"]

    served(check)


# -- beside reasoning --------------------------------------------------------------------------------------------------

FORMAT = {"response_format": {"type": "json_object"}}
FORCE = {"tools": [{"type": "function", "function": {"name": "weather"}}], "tool_choice": "required"}


@pytest.mark.parametrize("asked", [FORMAT, FORCE, {"guided_regex": "a"}])
@pytest.mark.parametrize("style, prompt_end, opens, after", [
    (Style("hermes", "qwen3"), "<think>\n", "", "</think>"),
    (Style("hermes", "qwen3"), "", "<think>", "</think>"),  # the model may open one
    (Style("hermes", "qwen3"), "<think>\n\n</think>\n\n", "", ""),
    (Style("hermes", "deepseek-r1"), "", "", "</think>"),
    (Style("hermes", "deepseek-r1"), "</think>", "", ""),
    (Style("hermes", "mistral"), "[THINK]", "", "[/THINK]"),
    (Style("hermes", None), "<think>\n", "", ""),
])  # fmt: skip
def test_a_constraint_begins_after_the_thought_that_comes_first(
    asked: dict[str, Any], style: Style, prompt_end: str, opens: str, after: str
) -> None:
    async def check(server: Served) -> None:
        server.engine.prompt_end = prompt_end
        for more in ({}, {"separate_reasoning": False}, {"include_reasoning": False}):
            found = await constraint_of(server, CHAT, {"messages": [USER], **asked, **more})
            assert found is not None and (found.opens, found.after) == (opens, after)

    served(check, style=style)


def test_calls_have_the_white_space_that_is_asked_for() -> None:
    async def check(server: Served) -> None:
        for more in ({"guided_whitespace_pattern": ""}, {"structured_outputs": {"whitespace_pattern": ""}}):
            found = await constraint_of(server, CHAT, {"messages": [USER], **FORCE, **more})
            assert found is not None and found.whitespace == "compact"

    served(check, style=Style("hermes", None))


@pytest.mark.parametrize("more", [{"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}])
def test_a_model_that_is_not_to_think_does_not_get_to_open_a_thought(more: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        for prompt_end, after in (("", ""), ("<think>\n", "</think>")):
            server.engine.prompt_end = prompt_end
            found = await constraint_of(server, CHAT, {"messages": [USER], **FORMAT, **more})
            assert found is not None and (found.opens, found.after) == ("", after)

    served(check, style=Style("hermes", "qwen3"))


def test_an_output_goes_on_inside_the_thought_of_the_message_before_it() -> None:
    async def check(server: Served) -> None:
        for text, after in (("<think>so", "</think>"), ("<think>so</think>", ""), ("so", "")):
            messages = [USER, {"role": "assistant", "content": text}]
            body = {"messages": messages, "continue_final_message": True, **FORMAT}
            found = await constraint_of(server, CHAT, body)
            assert found is not None and found.after == after

    served(check)


def test_generate_is_told_that_its_output_begins_with_a_thought() -> None:
    async def check(server: Served) -> None:
        params = [{"regex": "a"}, {}]
        for required, after in ((True, "</think>"), (False, "")):
            body = {"text": ["a", "b"], "sampling_params": params, "require_reasoning": required}
            assert (await server.post("/generate", body))[0] == 200
            first, second = (sent.spec.constraint for sent in server.engine.of_type(Generate)[-2:])
            assert first.after == after and second is None

    served(check)
