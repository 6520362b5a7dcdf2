"""A backslash appears in a message as often as in the client's text, both in replies and in the log."""

import logging
from typing import Any

import pytest

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


def test_the_log_of_operators_has_it_as_it_came_and_as_it_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Served) -> None:
        with caplog.at_level(logging.INFO, logger="ramet"):
            await server.post("/unload_lora_adapter", {"lora_name": BAD})
        (line,) = [each for each in caplog.messages if each.startswith("operator:")]
        assert f"lora_name='{BAD}'" in line
        assert r"a\\d" in line and r"a\\\d" not in line  # the refusal, which is JSON

    served(check)
