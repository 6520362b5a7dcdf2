"""Each name under which a client of OpenAI, Anthropic, SGLang or vLLM asks for a constraint becomes that constraint."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from ramet.ipc.messages import Finish, Generate
from ramet.ipc.spec import Constraint, ConstraintKind
from tests.fakes.server import Served, served

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
GENERATE = "/generate"
USER = {"role": "user", "content": "hi"}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [USER]},
    COMPLETIONS: {"prompt": "hi"},
    RESPONSES: {"input": "hi"},
    MESSAGES: {"messages": [USER], "max_tokens": 5},
    GENERATE: {"text": "hi"},
}
SCHEMA = {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"$ref": "#/$defs/b"}}, "$defs": {"b": True}}
NAMED = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "description": "d", "schema": SCHEMA}}
BESIDE = {"type": "json_schema", "name": "n", "strict": False, "schema": SCHEMA}
TAG = {"type": "structural_tag", "format": {"type": "any_text"}}
OLD_FIELDS = {"structures": [{"begin": "<a>", "end": "</a>"}], "triggers": ["<a>"]}
OLD_TAG = {"type": "structural_tag", **OLD_FIELDS}
SHARED = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
TEXTS = (CHAT, COMPLETIONS)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def schema(place: str, of: Any = SCHEMA, **more: Any) -> Constraint:
    return Constraint(ConstraintKind.JSON_SCHEMA, compact(of), place, **more)


def pattern(place: str, text: str, **more: Any) -> Constraint:
    return Constraint(ConstraintKind.REGEX, text, place, **more)


def tag(place: str, of: Any, **more: Any) -> Constraint:
    return Constraint(ConstraintKind.STRUCTURAL_TAG, compact(of), place, **more)


ANY_OBJECT = {"type": "object"}
STRUCTURED = "structured_outputs"
ASKED: list[tuple[tuple[str, ...], dict[str, Any], Constraint | None]] = [
    (SHARED, {"regex": "a+"}, pattern("regex", "a+")),
    (SHARED, {"json_schema": SCHEMA, "grammar_backend": "xgrammar"}, schema("json_schema", backend="xgrammar")),
    (SHARED, {"ebnf": 'root ::= "a"'}, Constraint(ConstraintKind.EBNF, 'root ::= "a"', "ebnf")),
    (SHARED, {"structural_tag": TAG}, tag("structural_tag", TAG)),
    (TEXTS, {"response_format": {"type": "text"}}, None),
    (TEXTS, {"response_format": {"type": "json_object"}}, schema("response_format", ANY_OBJECT)),
    (TEXTS, {"response_format": NAMED}, schema("response_format")),
    (TEXTS, {"response_format": BESIDE}, schema("response_format")),
    (TEXTS, {"response_format": TAG}, tag("response_format", TAG)),
    (TEXTS, {"response_format": OLD_TAG}, tag("response_format", OLD_FIELDS)),
    (TEXTS, {"guided_json": SCHEMA}, schema("guided_json")),
    (TEXTS, {"guided_json": compact(SCHEMA)}, schema("guided_json")),
    (TEXTS, {"guided_regex": "[ab]"}, pattern("guided_regex", "[ab]")),
    (TEXTS, {"guided_choice": ["a.b", "c|d"]}, pattern("guided_choice", r"a\.b|c\|d")),
    (TEXTS, {"guided_grammar": "root ::= x"}, Constraint(ConstraintKind.EBNF, "root ::= x", "guided_grammar")),
    (TEXTS, {"guided_regex": "a", "guided_decoding_backend": "guidance"}, pattern(
        "guided_regex", "a", backend="llguidance")),
    (TEXTS, {"guided_regex": "a", "guided_decoding_backend": "auto", "grammar_backend": "outlines"}, pattern(
        "guided_regex", "a", backend="outlines")),
    (TEXTS, {"guided_json": SCHEMA, "guided_whitespace_pattern": ""}, schema("guided_json", whitespace="compact")),
    (TEXTS, {"response_format": NAMED, "guided_whitespace_pattern": r"[\n\t ]*"}, schema(
        "response_format", whitespace="flexible")),
    (TEXTS, {"json_schema": SCHEMA, "guided_whitespace_pattern": ""}, schema("json_schema", whitespace="compact")),
    (TEXTS, {"response_format": TAG, STRUCTURED: {"whitespace_pattern": ""}}, tag(
        "response_format", TAG, whitespace="compact")),
    (TEXTS, {"regex": "a", "guided_whitespace_pattern": ""}, pattern("regex", "a")),
    ((RESPONSES,), {"text": {"format": NAMED}, STRUCTURED: {"whitespace_pattern": ""}}, schema(
        "text.format", whitespace="compact")),
    ((*TEXTS, RESPONSES), {"json_schema": SCHEMA, STRUCTURED: {"whitespace_pattern": r"\s*"}}, schema(
        "json_schema", whitespace="flexible")),
    ((*TEXTS, RESPONSES), {STRUCTURED: {"json": SCHEMA, "regex": None}}, schema(f"{STRUCTURED}.json")),
    ((*TEXTS, RESPONSES), {STRUCTURED: {"regex": "a", "disable_fallback": True}}, pattern(f"{STRUCTURED}.regex", "a")),
    ((*TEXTS, RESPONSES), {STRUCTURED: {"choice": ["(", ")"]}}, pattern(f"{STRUCTURED}.choice", r"\(|\)")),
    ((*TEXTS, RESPONSES), {STRUCTURED: {"grammar": "r"}}, Constraint(
        ConstraintKind.EBNF, "r", f"{STRUCTURED}.grammar")),
    ((*TEXTS, RESPONSES), {STRUCTURED: {"json_object": True, "disable_any_whitespace": True}}, schema(
        f"{STRUCTURED}.json_object", ANY_OBJECT, whitespace="single-space")),
    ((*TEXTS, RESPONSES), {STRUCTURED: {"structural_tag": compact(TAG)}}, tag(f"{STRUCTURED}.structural_tag", TAG)),
    ((*TEXTS, RESPONSES), {STRUCTURED: {"json_object": False}}, None),
    ((RESPONSES,), {"text": {"format": {"type": "text"}}}, None),
    ((RESPONSES,), {"text": {"format": {"type": "json_object"}}}, schema("text.format", ANY_OBJECT)),
    ((RESPONSES,), {"text": {"format": BESIDE}}, schema("text.format")),
    ((MESSAGES,), {"output_format": {"type": "json_schema", "schema": SCHEMA}}, schema("output_format")),
    ((MESSAGES,), {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}}, schema(
        "output_config.format")),
    ((GENERATE,), {"sampling_params": {"regex": "a"}, "grammar_backend": "outlines"}, pattern(
        "sampling_params.regex", "a", backend="outlines")),
]  # fmt: skip
CASES = [(path, asked, found) for paths, asked, found in ASKED for path in paths]


@pytest.mark.parametrize("path, asked, found", CASES, ids=lambda value: str(value)[:60])
def test_what_is_asked_is_sent(path: str, asked: dict[str, Any], found: Constraint | None) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["{}"]
        status, reply = await server.post(path, {**BODIES[path], **asked})
        assert status == 200, reply
        (sent,) = server.engine.of_type(Generate)
        constraint = sent.spec.constraint
        assert (constraint and replace(constraint, after="", opens="")) == found  # a chat's model may think first

    served(check)


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    (CHAT, {"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is missing"),
    (CHAT, {"response_format": {"type": "structural_tag"}}, "response_format", "`format`, or `structures` and"),
    (CHAT, {"response_format": NAMED, "regex": "a"}, "regex", "but so is response_format"),
    (COMPLETIONS, {"guided_json": "{}", "guided_choice": ["a"]}, "guided_choice", "but so is guided_json"),
    (CHAT, {STRUCTURED: {"json": {}, "regex": "a"}}, f"{STRUCTURED}.regex", f"but so is {STRUCTURED}.json"),
    (RESPONSES, {"text": {"format": BESIDE}, "ebnf": "r"}, "ebnf", "but so is text.format"),
    (MESSAGES, {"output_format": {"type": "json_schema", "schema": {}}, "json_schema": "{}"}, "json_schema",
        "but so is output_format"),
    (CHAT, {"guided_decoding_backend": "lm-format-enforcer"}, "guided_decoding_backend", "'auto' or 'guidance' or"),
    (CHAT, {"guided_decoding_backend": "outlines", "grammar_backend": "xgrammar"}, "guided_decoding_backend",
        "but grammar_backend is 'xgrammar'"),
    (CHAT, {"guided_json": {}, "guided_whitespace_pattern": "[ ]+"}, "guided_whitespace_pattern", "does not write"),
    (CHAT, {STRUCTURED: {"whitespace_pattern": "x"}}, f"{STRUCTURED}.whitespace_pattern", "does not write"),
    (CHAT, {STRUCTURED: {"disable_additional_properties": True}}, f"{STRUCTURED}.disable_additional_properties",
        "not built"),
    (CHAT, {"guided_choice": []}, "guided_choice", "must not be empty"),
    (COMPLETIONS, {"guided_choice": ["a", ""]}, "guided_choice[1]", "must not be empty"),
    (COMPLETIONS, {"response_format": {"type": "json_schema", "schema": {"const": "x" * 300_000}}}, "response_format",
        "262144"),
    (MESSAGES, {"output_config": {"format": {"type": "json_object", "schema": {}}}}, "output_config.format.type",
        "'json_schema'"),
]  # fmt: skip


@pytest.mark.parametrize("path, asked, field, piece", REFUSED, ids=lambda value: str(value)[:60])
def test_what_cannot_be_is_refused_by_name_and_nothing_is_sent(
    path: str, asked: dict[str, Any], field: str, piece: str
) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, {**BODIES[path], **asked})
        message = reply["error"]["message"]
        assert status == 400 and message.startswith(f"{field} ") and piece in message, reply
        assert not server.engine.sent

    served(check)


NAMES = ("json_schema", "regex", "ebnf", "structural_tag", "response_format", "structured_outputs", "output_format",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar")  # fmt: skip
VALUES: dict[str, Any] = {
    "regex": "a", "ebnf": "r", "structural_tag": TAG, "structured_outputs": {"regex": "a"}, "guided_regex": "a",
    "guided_choice": ["a"], "guided_grammar": "r", "response_format": {"type": "json_object"},
    "output_format": {"type": "json_schema", "schema": SCHEMA},
}  # fmt: skip
WITH_FORMAT: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"text": {"format": BESIDE}}), (COMPLETIONS, {"output_config": {"format": BESIDE}}),
    (RESPONSES, {"output_config": {"format": BESIDE}}), (MESSAGES, {"text": {"format": {"type": "json_object"}}}),
    (GENERATE, {"output_config": {"format": BESIDE}}),
    (GENERATE, {"sampling_params": {"output_config": {"format": 1}}}),
    *[(path, {STRUCTURED: {name: "{}"}}) for path in (CHAT, RESPONSES) for name in ("json_schema", "schema")],
    (RESPONSES, {STRUCTURED: {"pattern": "a"}}), (COMPLETIONS, {STRUCTURED: {"guided_regex": "a"}}),
    (COMPLETIONS, {STRUCTURED: {"choices": ["a"]}}), (CHAT, {STRUCTURED: {"ebnf": "r"}}),
    (CHAT, {"response_format": {"type": "json_object", "schema": SCHEMA}}),
    (COMPLETIONS, {"response_format": {"type": "json_object", "json_schema": {"schema": SCHEMA}}}),
    (RESPONSES, {"text": {"format": {"type": "text", "schema": SCHEMA}}}),
]  # fmt: skip
BY_NAME = [(path, {name: VALUES.get(name, SCHEMA)}) for path in BODIES for name in NAMES]
INSIDE = [(GENERATE, {"sampling_params": {name: VALUES.get(name, SCHEMA)}}) for name in NAMES]


@pytest.mark.parametrize("path, asked", [*WITH_FORMAT, *BY_NAME, *INSIDE], ids=lambda value: str(value)[:60])
def test_no_name_of_a_constraint_is_ignored(path: str, asked: dict[str, Any]) -> None:
    """It becomes a constraint, or is refused with the field that this endpoint has for it."""

    async def check(server: Served) -> None:
        server.engine.says = ["{}"]
        status, reply = await server.post(path, {**BODIES[path], **asked})
        if status == 200:
            (sent,) = server.engine.of_type(Generate)
            assert sent.spec.constraint is not None and (path, asked) not in WITH_FORMAT
            return
        place, value = next(iter(asked.items()))
        message = reply["error"]["message"]
        while not message.startswith(f"{place} is "):
            name, value = list(value.items())[-1]
            place += f".{name}"
        assert status == 400 and "another field for it (send " in message and not server.engine.sent, reply

    served(check)


@pytest.mark.parametrize("path", BODIES)
def test_other_names_that_ask_for_no_constraint_are_taken(path: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["{}"]
        others = {"text": {"unknown": 1}, "output_config": {"format": None}, **dict.fromkeys(NAMES), "unknown": 1}
        status, reply = await server.post(path, {**others, **BODIES[path]})
        assert status == 200, reply
        (sent,) = server.engine.of_type(Generate)
        assert sent.spec.constraint is None
        inside = {"json": {}, "schema": None}
        if path in (*TEXTS, RESPONSES):
            assert (await server.post(path, {**BODIES[path], STRUCTURED: inside, "output_config": "x"}))[0] == 200

    served(check)


ENDINGS = {
    GENERATE: lambda reply: reply["meta_info"]["finish_reason"] == {"type": "length", "length": 5},
    CHAT: lambda reply: reply["choices"][0]["finish_reason"] == "length",
    COMPLETIONS: lambda reply: reply["choices"][0]["finish_reason"] == "length",
    RESPONSES: lambda reply: (reply["status"], reply["incomplete_details"]["reason"]) == (
        "incomplete", "max_output_tokens"),
    MESSAGES: lambda reply: reply["stop_reason"] == "max_tokens",
}  # fmt: skip
LENGTHS = {CHAT: "max_completion_tokens", COMPLETIONS: "max_tokens", RESPONSES: "max_output_tokens"}


@pytest.mark.parametrize("path", ENDINGS)
def test_an_output_that_is_cut_inside_its_constraint_says_so(path: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ['{"a', '": ', '"b', " c", " d", '"}']
        length = {LENGTHS[path]: 5} if path in LENGTHS else {}
        asked = {"sampling_params": {"json_schema": {}, "max_new_tokens": 5}} if path == GENERATE else {
            "json_schema": {}, **length}  # fmt: skip
        status, reply = await server.post(path, {**BODIES[path], **asked})
        assert status == 200 and ENDINGS[path](reply), reply
        assert '{"a": "b c d' in json.dumps(reply).replace("\\", "")

    served(check)


@pytest.mark.parametrize("path, asked, place", [
    (RESPONSES, {"text": {"format": BESIDE}}, "text.format"), (CHAT, {"response_format": NAMED}, "response_format"),
    (GENERATE, {"sampling_params": {"regex": "("}}, "sampling_params.regex"),
    (GENERATE, {"text": ["a", "b"], "sampling_params": [{}, {"regex": "("}]}, "sampling_params[1].regex"),
])  # fmt: skip
def test_what_only_the_engine_finds_wrong_is_said_at_the_client_s_field(
    path: str, asked: dict[str, Any], place: str
) -> None:
    async def check(server: Served) -> None:
        async def refuse() -> None:
            found = await server.engine.saw(Generate, len(asked.get("text", "a")) if path == GENERATE else 1)
            constraint = found[-1].spec.constraint
            finish = Finish.abort(constraint.place, "does not compile")
            server.engine.close(found[-1].uids[0], finish)

        refusing = asyncio.create_task(refuse())
        status, reply = await server.post(path, {**BODIES[path], **asked})
        await refusing
        assert status == 400 and reply["error"]["message"].startswith(f"{place} does not compile"), reply

    served(check, auto=False)


def test_a_response_says_which_format_it_has() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["{}"]
        _, reply = await server.post(RESPONSES, {"input": "hi", "text": {"format": BESIDE, "verbosity": "low"}})
        assert reply["text"] == {"format": BESIDE}

    served(check)
