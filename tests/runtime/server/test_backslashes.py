"""A backslash appears in a message as often as in the client's text, both in replies and in the log."""

import logging
from typing import Any

import pytest

from ramet.ipc.messages import Chat
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.parsers.python_arguments import patterns_of
from ramet.runtime.intake.parsers.tools import Offer, Unwritable
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import TemplateSources
from tests.fakes.server import Served, served

BAD = "a\\d"
FIELDS: dict[str, dict[str, Any]] = {
    "sampling_params": {"sampling_params": BAD},
    "top_k": {"sampling_params": {"top_k": BAD}},
    "a list": {"sampling_params": {"stop_token_ids": [BAD]}},
}


@pytest.mark.parametrize("how", FIELDS)
def test_a_reply_has_it_once(how: str) -> None:
    async def check(server: Served) -> None:
        status, body = await server.post("/generate", {"text": "a", **FIELDS[how]})
        assert status == 400 and BAD in body["error"]["message"] and "\\\\" not in body["error"]["message"]

    served(check)


@pytest.mark.parametrize("turn", [{"role": BAD}, {"role": BAD, "tool_calls": [{}]}])
def test_the_refusal_of_a_role_has_it_once(turn: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        Chats(TemplateSources(f"{{{{ messages }}}}'{BAD if len(turn) > 1 else ''}'")).render(Chat([turn]))
    assert BAD in str(caught.value) and "\\\\" not in str(caught.value)


@pytest.mark.parametrize(
    "schema", [{"properties": {"a": {"type": BAD}}}, {"properties": {BAD: {}}}, {"required": [BAD]}]
)
def test_what_calls_in_python_cannot_be_held_to_has_it_once(schema: dict[str, Any]) -> None:
    with pytest.raises(Unwritable) as caught:
        patterns_of([Offer("f", {"type": "object", **schema})])
    assert BAD in str(caught.value) and "\\\\" not in str(caught.value)


def test_the_log_of_operators_has_it_as_it_came_and_as_it_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Served) -> None:
        with caplog.at_level(logging.INFO, logger="ramet"):
            await server.post("/unload_lora_adapter", {"lora_name": BAD})
        (line,) = [each for each in caplog.messages if each.startswith("operator:")]
        assert f"lora_name='{BAD}'" in line
        assert r"a\\d" in line and r"a\\\d" not in line  # the refusal, which is JSON

    served(check)
