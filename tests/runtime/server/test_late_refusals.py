"""A refusal of the tokenizer or the scheduler names the entry of a list as the client wrote it, or the prompt."""

import asyncio
from typing import Any

import pytest

from ramet.ipc.errors import ErrorRecord
from ramet.ipc.messages import Finish, Generate, Rejected
from tests.fakes.server import Served, served

FACT = "is wrong"
TWO = {"text": ["a", "b"]}
IDS = {"token_ids_logprob": [[1], [2]]}


@pytest.mark.parametrize(("path", "body", "place", "message"), [
    ("/generate", {**TWO, "logprob_start_len": [0, 9]}, "logprob_start_len", "logprob_start_len[1] is wrong"),
    ("/generate", {**TWO, **IDS}, "token_ids_logprob[0]", "token_ids_logprob[1][0] is wrong"),
    ("/generate", {**TWO, "token_ids_logprob": [1]}, "token_ids_logprob[0]",
     "token_ids_logprob[0] is wrong; the prompt is text[1]"),
    ("/generate", {**TWO, "logprob_start_len": 9}, "logprob_start_len",
     "logprob_start_len is wrong; the prompt is text[1]"),
    ("/generate", {**TWO, "sampling_params": [{}, {}]}, "sampling_params.stop_token_ids[3]",
     "sampling_params[1].stop_token_ids[3] is wrong"),
    ("/generate", {**TWO, "sampling_params": {}}, "sampling_params.stop_token_ids[3]",
     "sampling_params.stop_token_ids[3] is wrong"),
    ("/generate", {"input_ids": [[1], [2]]}, "input_ids", "input_ids[1] is wrong"),
    ("/generate", {"input_ids": [[1], [2]]}, "input_ids[5]", "input_ids[1][5] is wrong"),
    ("/v1/completions", {"prompt": ["a", "b"], "logprobs": 3}, "return_logprob",
     "logprobs is wrong; the prompt is prompt[1]"),
    ("/v1/completions", {"prompt": "a"}, "return_logprob", "logprobs is wrong"),
    ("/generate", {"text": "b", "logprob_start_len": 9}, "logprob_start_len", "logprob_start_len is wrong"),
])  # fmt: skip
def test_a_rejection_names_the_entry(path: str, body: dict[str, Any], place: str, message: str) -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post(path, body))
        several = isinstance(body.get("text") or body.get("input_ids") or body.get("prompt"), list)
        *_, last = await server.engine.saw(Generate, 1 + several)
        server.engine.tell(Rejected(last.uids, ErrorRecord(place, FACT)))
        status, reply = await waiting
        assert status == 400 and reply["error"]["message"] == message
        if path != "/generate":
            assert reply["error"]["param"] == "logprobs"

    served(check, auto=False)


@pytest.mark.parametrize(("given", "message"), [
    ([None, "p"], "custom_logit_processor[1] is 'p', must be another"),
    ("p", "custom_logit_processor is 'p', must be another; the prompt is text[1]"),
])  # fmt: skip
def test_the_schedulers_refusal_names_the_entry(given: Any, message: str) -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/generate", {**TWO, "custom_logit_processor": given}))
        await server.engine.saw(Generate, 2)
        place = "custom_logit_processor"
        refused = Finish.abort(place, "is 'p', must be another")
        server.engine.close(2, refused)
        status, reply = await waiting
        assert status == 400 and reply["error"]["message"] == message

    served(check, auto=False, enable_custom_logit_processor=True)
