"""A name that is nearly a constraint's is refused, because an output without it would have any form."""

from typing import Any

import pytest

from tests.fakes.server import Served, served

USER = {"role": "user", "content": "Hello"}
CHAT = ("/v1/chat/completions", {"messages": [USER]})
TEXT = ("/v1/completions", {"prompt": "a"})
MESSAGES = ("/v1/messages", {"messages": [USER], "max_tokens": 3})
RESPONSES = ("/v1/responses", {"input": "a"})
GENERATE = ("/generate", {"text": "a"})


@pytest.mark.parametrize(("endpoint", "asked", "name", "instead"), [
    (CHAT, {"regexp": "a"}, "regexp", "regex"),
    (CHAT, {"guided_regexp": "a"}, "guided_regexp", "guided_regex"),
    (CHAT, {"jsonschema": {}}, "jsonschema", "json_schema"),
    (CHAT, {"response_formats": {"type": "json_object"}}, "response_formats", "response_format"),
    (CHAT, {"structured_output": {"regex": "a"}}, "structured_output", "structured_outputs"),
    (CHAT, {"choice": ["a"]}, "choice", "guided_choice"),
    (CHAT, {"guided_decoding": {"regex": "a"}}, "guided_decoding", "structured_outputs"),
    (CHAT, {"structured_outputs": {"regx": "a"}}, "structured_outputs.regx", "regex"),
    (TEXT, {"json": {}}, "json", "json_schema"),
    (TEXT, {"structured_outputs": {"regex": "a", "backend": "xgrammar"}}, "structured_outputs.backend", ""),
    (MESSAGES, {"regexx": "a"}, "regexx", "regex"),
    (RESPONSES, {"choices": ["a"]}, "choices", "structured_outputs"),
    (RESPONSES, {"grammar": "a"}, "grammar", "ebnf"),
    (GENERATE, {"sampling_params": {"regexp": "a"}}, "sampling_params.regexp", "regex"),
    (GENERATE, {"sampling_params": {"choice": ["a"]}}, "sampling_params.choice", "regex"),
    (GENERATE, {"text": ["a", "b"], "sampling_params": [{}, {"jsonschema": {}}]}, "sampling_params[1].jsonschema",
     "json_schema"),
])  # fmt: skip
def test_a_name_that_is_nearly_a_constraint_s_is_refused(
    endpoint: tuple[str, dict[str, Any]], asked: dict[str, Any], name: str, instead: str
) -> None:
    async def check(server: Served) -> None:
        path, body = endpoint
        status, reply = await server.post(path, {**body, **asked})
        said = f"{name} is not a known name: it would constrain nothing"
        expected = f"{said} (send {instead})" if instead else f"{said} (omit it)"
        error = reply["error"]
        assert (status, error["message"]) == (400, expected)

    served(check)


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, MESSAGES, RESPONSES, GENERATE])
def test_other_unknown_names_are_ignored(endpoint: tuple[str, dict[str, Any]]) -> None:
    async def check(server: Served) -> None:
        path, body = endpoint
        server.engine.says = ["a"]
        unknown = {"unheard_of": 1, "regexp": None, "jsonschema": "", "context": "a", "format_of": {}}
        assert (await server.post(path, {**body, **unknown}))[0] == 200

    served(check)


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, RESPONSES])
def test_structured_outputs_without_a_constraint_is_refused(endpoint: tuple[str, dict[str, Any]]) -> None:
    async def check(server: Served) -> None:
        path, body = endpoint
        for empty in ({}, {"regex": None}):
            status, reply = await server.post(path, {**body, "structured_outputs": empty})
            assert status == 400 and reply["error"]["message"].startswith("structured_outputs asks for nothing")

    served(check)


def test_a_structural_tag_without_its_parts_says_where_they_stand() -> None:
    async def check(server: Served) -> None:
        path, body = CHAT
        for nested in ({"structural_tag": {"format": {}}}, {"triggers": ["<a>"]}):
            status, reply = await server.post(path, {**body, "response_format": {"type": "structural_tag", **nested}})
            said = "response_format has no `format`, or `structures` and `triggers`, which stand beside its type"
            assert status == 400 and reply["error"]["message"].startswith(said)

    served(check)
