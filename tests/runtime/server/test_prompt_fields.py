"""vLLM's fields about the prompt, which of its tokens are kept and their log-probabilities, and its other names."""

from typing import Any

import pytest

from ramet.ipc.messages import Generate, Render, pack_ids
from ramet.ipc.spec import Truncation
from tests.fakes.engine import LIMITS
from tests.fakes.server import Served, served

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "Hello"}
HELLO = {"messages": [USER]}
BODIES: dict[str, dict[str, Any]] = {CHAT: HELLO, COMPLETIONS: {"prompt": "abcdef"}}
CONTEXT = LIMITS.context_length


@pytest.mark.parametrize(("path", "fields", "expected"), [
    (COMPLETIONS, {"truncate_prompt_tokens": 3}, Truncation(3)),
    (CHAT, {"truncate_prompt_tokens": 3}, Truncation(3)),
    (COMPLETIONS, {"truncate_prompt_tokens": 3, "truncation_side": "left"}, Truncation(3)),
    (COMPLETIONS, {"truncate_prompt_tokens": 3, "truncation_side": "right"}, Truncation(3, from_start=True)),
    (COMPLETIONS, {"truncate_prompt_tokens": -1}, Truncation(CONTEXT - 16)),
    (COMPLETIONS, {"truncate_prompt_tokens": -1, "max_tokens": 100}, Truncation(CONTEXT - 100)),
    (CHAT, {"truncate_prompt_tokens": -1}, Truncation(CONTEXT - 1)),
    (CHAT, {"truncate_prompt_tokens": -1, "max_tokens": 0}, Truncation(CONTEXT)),
    (COMPLETIONS, {"truncation_side": "right"}, None),
    (CHAT, {"truncate_prompt_tokens": None}, None),
])  # fmt: skip
def test_so_many_tokens_of_a_prompt_are_kept(path: str, fields: dict[str, Any], expected: Truncation | None) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        status, reply = await server.post(path, {**BODIES[path], **fields})
        assert status == 200, reply
        assert server.engine.of_type(Generate)[0].spec.truncate == expected

    served(check)


@pytest.mark.parametrize("value", [0, -2, CONTEXT, CONTEXT - 15, "a", 1.5])
def test_no_more_is_kept_than_fits_beside_the_output(value: Any) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(COMPLETIONS, {"prompt": "a", "truncate_prompt_tokens": value})
        assert status == 400 and reply["error"]["param"] == "truncate_prompt_tokens"

    served(check)


def test_ids_are_cut_before_they_are_looked_at() -> None:
    async def check(server: Served) -> None:
        for prompt in ([10**6, 1, 2, 3], [[1, 2, 3], [10**6, 1, 2, 3]]):
            status, reply = await server.post(COMPLETIONS, {"prompt": prompt, "truncate_prompt_tokens": 3})
            assert status == 200, reply
            assert (await server.post(COMPLETIONS, {"prompt": prompt}))[0] == 400
        assert {bytes(each.content.ids) for each in server.engine.of_type(Generate)} == {pack_ids([1, 2, 3])}

    served(check)


def test_a_chat_that_is_cut_may_be_longer_than_the_context() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        await server.post(CHAT, {**HELLO, "truncate_prompt_tokens": 3})
        await server.post(CHAT, HELLO)
        assert [each.may_exceed for each in server.engine.of_type(Render)] == [True, False]

    served(check)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
def test_the_text_keeps_what_stopped_it_under_either_name(path: str) -> None:
    async def check(server: Served) -> None:
        body = BODIES.get(path) or ({"input": "a"} if path == RESPONSES else {**HELLO, "max_tokens": 5})
        server.engine.says = ["Hi"]
        for fields in (
            {"include_stop_str_in_output": True}, {"no_stop_trim": True, "include_stop_str_in_output": True},
            {"include_stop_str_in_output": False}, {"no_stop_trim": None, "include_stop_str_in_output": True},
        ):  # fmt: skip
            status, reply = await server.post(path, {**body, **fields})
            assert status == 200, reply
        asked = [each.spec.params.no_stop_trim for each in server.engine.of_type(Generate)]
        assert asked == [True, True, False, True]
        status, reply = await server.post(path, {**body, "no_stop_trim": True, "include_stop_str_in_output": False})
        assert status == 400 and "no_stop_trim" in reply["error"]["message"]

    served(check)


def test_vllm_s_name_of_a_request_names_it() -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post(COMPLETIONS, {"prompt": "a", "request_id": "mine"})
        assert reply["id"] == "mine"
        status, reply = await server.post(COMPLETIONS, {"prompt": "a", "request_id": "mine", "rid": "other"})
        assert status == 400 and reply["error"]["param"] == "request_id"

    served(check)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_the_prompt_s_log_probabilities_are_asked_for(path: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        for fields in ({"prompt_logprobs": 2}, {"prompt_logprobs": 0}):
            assert (await server.post(path, {**BODIES[path], **fields}))[0] == 200
        several = {"prompt_logprobs": 2, "logprobs": 5} if path == COMPLETIONS else {
            "prompt_logprobs": 2, "logprobs": True, "top_logprobs": 5
        }  # fmt: skip
        assert (await server.post(path, {**BODIES[path], **several}))[0] == 200
        asked = [each.spec.logprobs for each in server.engine.of_type(Generate)]
        assert [(each.start, each.num_top, each.texts) for each in asked] == [(0, 2, True), (0, 0, True), (0, 5, True)]
        status, reply = await server.post(path, {**BODIES[path], "prompt_logprobs": 1, "stream": True})
        assert status == 400 and reply["error"]["param"] == "prompt_logprobs"
        for bad in (-1, 257, "a"):
            status, reply = await server.post(path, {**BODIES[path], "prompt_logprobs": bad})
            assert status == 400 and reply["error"]["param"] == "prompt_logprobs"

    served(check)
