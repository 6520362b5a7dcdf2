"""Values that clients of other servers send: legal here too, on every surface that has the field."""

from typing import Any

import pytest

from ramet.ipc.messages import Generate
from ramet.ipc.params import SamplingParams
from tests.fakes.server import Served, served

GENERATE, CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    "/generate", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
)  # fmt: skip
USER = {"role": "user", "content": "Hello"}
SURFACES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [USER]},
    COMPLETIONS: {"prompt": "a"},
    RESPONSES: {"input": "a"},
    MESSAGES: {"messages": [USER], "max_tokens": 5},
}


async def params_of(server: Served, path: str, fields: dict[str, Any]) -> SamplingParams:
    """What the engine was asked for."""
    server.engine.says = ["Hi"]
    body = {"text": "a", "sampling_params": fields} if path == GENERATE else {**SURFACES[path], **fields}
    status, reply = await server.post(path, body)
    assert status == 200, reply
    params = server.engine.of_type(Generate)[-1].spec.params
    assert isinstance(params, SamplingParams)
    return params


@pytest.mark.parametrize("path", [GENERATE, *SURFACES])
def test_a_bias_may_be_a_number_s_text(path: str) -> None:
    async def check(server: Served) -> None:
        params = await params_of(server, path, {"logit_bias": {"50": "5", "7": "-100", "8": "1.5e1"}})
        assert params.logit_bias == ((50, 5.0), (7, -100.0), (8, 15.0))

    served(check)


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e999", "101", "0x5", "1_0", " 5", "5" * 100, "٥"])
def test_a_bias_s_text_is_a_finite_number_in_range(text: str) -> None:
    async def check(server: Served) -> None:
        for path, body in SURFACES.items():
            status, reply = await server.post(path, {**body, "logit_bias": {"50": text}})
            assert status == 400 and reply["error"]["message"].startswith("logit_bias[50] is "), reply
        assert server.engine.of_type(Generate) == []

    served(check)


@pytest.mark.parametrize("path", [GENERATE, *SURFACES])
def test_an_empty_constraint_is_none(path: str) -> None:
    async def check(server: Served) -> None:
        empty = {"regex": "", "json_schema": "", "ebnf": "", "structural_tag": ""}
        assert (await params_of(server, path, {**empty, "top_k": 3})).top_k == 3

    served(check)


def test_two_constraints_are_still_one_too_many() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(COMPLETIONS, {"prompt": "a", "regex": "a", "ebnf": "b"})
        assert status == 400 and "Only one of" in reply["error"]["message"]

    served(check)


@pytest.mark.parametrize("fields", [
    {"logprobs": False, "top_logprobs": 0}, {"top_logprobs": 0}, {"logprobs": None, "top_logprobs": 0},
    {"logprobs": False, "top_logprobs": None},
])  # fmt: skip
def test_no_best_tokens_need_no_logprobs(fields: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(CHAT, {**SURFACES[CHAT], **fields, "max_tokens": 2})
        assert status == 200 and reply["choices"][0]["logprobs"] is None
        status, reply = await server.post(
            CHAT, {**SURFACES[CHAT], "top_logprobs": 0, "logprobs": True, "max_tokens": 2}
        )
        assert status == 200 and len(reply["choices"][0]["logprobs"]["content"]) == 2
        status, reply = await server.post(CHAT, {**SURFACES[CHAT], "top_logprobs": 1})
        assert status == 400 and reply["error"]["param"] == "top_logprobs"

    served(check)


@pytest.mark.parametrize("path", ["/detokenize", "/v1/detokenize"])
def test_nothing_is_the_text_of_no_tokens(path: str) -> None:
    async def check(server: Served) -> None:
        assert await server.post(path, {"tokens": []}) == (200, {"text": ""})
        assert await server.post(path, {"tokens": [[], [97]]}) == (200, {"text": ["", "a"]})
        status, reply = await server.post(path, {"tokens": [[], 5]})
        assert status == 400 and reply["error"]["message"].startswith("tokens[1] is 5")
        reply = (await server.post(path.replace("de", ""), {"prompt": ""}))[1]
        assert (reply["tokens"], reply["count"]) == ([], 0)

    served(check)


@pytest.mark.parametrize("path", [GENERATE, *SURFACES])
def test_stop_ids_may_be_larger_than_any_vocabulary(path: str) -> None:
    async def check(server: Served) -> None:
        params = await params_of(server, path, {"stop_token_ids": [4, 2**31, 2**63 - 1]})
        assert params.stop_token_ids[0] == 4 and params.stop_token_ids[1:] == (2**31 - 1,)

    served(check)


def test_custom_params_may_be_one_for_each_prompt() -> None:
    async def check(server: Served) -> None:
        each = [{"a": 1}, None, {"b": [2]}]
        params = {"temperature": 0.5, "custom_params": each, "max_new_tokens": 2}
        status, _ = await server.post(GENERATE, {"text": ["x", "y", "z"], "sampling_params": params})
        asked = [item.spec.params for item in server.engine.of_type(Generate)]
        assert status == 200 and [one.custom_params for one in asked] == each
        assert {(one.temperature, one.max_new_tokens) for one in asked} == {(0.5, 2)}

    served(check)


@pytest.mark.parametrize(("text", "each", "place"), [
    (["x", "y"], [{}], "sampling_params.custom_params has 1 entries"),
    (["x", "y"], [{}, 5], "sampling_params.custom_params[1] is 5"),
    ("x", [{}], "sampling_params.custom_params is a list"),
])  # fmt: skip
def test_a_list_of_custom_params_fits_its_prompts(text: Any, each: list[Any], place: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(GENERATE, {"text": text, "sampling_params": {"custom_params": each}})
        assert status == 400 and reply["error"]["message"].startswith(place), reply
        status, reply = await server.post(GENERATE, {"text": ["x"], "sampling_params": [{"custom_params": [{}]}]})
        assert status == 400 and reply["error"]["message"].startswith("sampling_params[0].custom_params is [{}]")

    served(check)


ASKS_FOR_NOTHING: dict[str, tuple[Any, ...]] = {
    "bootstrap_host": (None, [], [None]), "bootstrap_port": (None, [None]), "bootstrap_room": (None, []),
    "data_parallel_rank": (0, None), "routed_dp_rank": (0,), "session_params": ({}, None), "session_id": ("any", None),
    "custom_labels": ({"a": "b"},),
}  # fmt: skip
REFUSED: dict[str, tuple[Any, ...]] = {
    "bootstrap_host": ("10.0.0.1", [None, "10.0.0.1"]), "bootstrap_port": (8998, [8998]), "bootstrap_room": (1, [0]),
    "data_parallel_rank": (1, -1), "routed_dp_rank": (1,), "session_params": ({"id": "x"},),
    "kv_transfer_params": ({"a": 1},),
}  # fmt: skip
OF_GENERATE = (
    {"return_bytes": (False, None), "log_metrics": (True, None)},
    {"return_bytes": (True,), "log_metrics": (False,)},
)


@pytest.mark.parametrize("path", [GENERATE, *SURFACES])
def test_what_is_not_built_is_refused_by_name_and_asking_for_nothing_is_legal(path: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Hi"]
        body = SURFACES.get(path, {"text": ["a", "b"]})
        taken, refused = (ASKS_FOR_NOTHING, REFUSED) if path != GENERATE else (
            ASKS_FOR_NOTHING | OF_GENERATE[0], REFUSED | OF_GENERATE[1] | {"session_params": ()}
        )  # fmt: skip
        for name, value in ((name, value) for name, values in taken.items() for value in values):
            status, reply = await server.post(path, {**body, name: value})
            assert status == 200, (name, value, reply)
        for name, value in ((name, value) for name, values in refused.items() for value in values):
            status, reply = await server.post(path, {**body, name: value})
            message = reply["error"]["message"]
            assert status == 400 and message.startswith(name + " is ") and "not built" in message, (name, value, reply)

    served(check)
