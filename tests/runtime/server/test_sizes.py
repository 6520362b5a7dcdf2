"""A request whose prompts come to too much with all their samples is a 400 that names the fields and the bound."""

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from ramet.ipc.messages import Generate
from ramet.runtime.engine_client.prompt import MAX_PROMPT_BYTES
from tests.fakes.engine import HIDDEN, LIMITS
from tests.fakes.server import Served, served

LABELS = {"label_token_ids": [1]}
SIXTEENTH = "a" * (MAX_PROMPT_BYTES // 16)


@pytest.mark.parametrize("path, body, place", [
    ("/generate", {"text": SIXTEENTH + "a", "sampling_params": {"n": 16}}, "text"),
    ("/generate", {"text": [SIXTEENTH, SIXTEENTH, "a"], "sampling_params": {"n": 8}}, "text"),
    ("/generate", {"text": [SIXTEENTH, "a"], "sampling_params": [{"n": 16}, {"n": 1}]}, "text"),
    ("/generate", {"input_ids": [1] * (MAX_PROMPT_BYTES // 4 // 128 + 1), "sampling_params": {"n": 128}}, "input_ids"),
    ("/generate", {"input_embeds": [[0] * HIDDEN] * 50_000, "sampling_params": {"n": 128}}, "input_embeds"),
    ("/v1/completions", {"prompt": SIXTEENTH + "a", "n": 16}, "prompt"),
    ("/v1/completions", {"prompt": SIXTEENTH + "a", "n": 1, "best_of": 16}, "prompt"),
    ("/v1/score", {"query": "a" * 5000, "items": ["a"] * 16_000, **LABELS}, "items"),
    ("/v1/score", {"query": [1] * 1250, "items": [[1]] * 16_000, **LABELS}, "items"),
    ("/v1/rerank", {"query": "a" * 5000, "documents": ["a"] * 16_000}, "documents"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_prompts_times_samples_are_bounded(path: str, body: dict[str, Any], place: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        message = reply["error"]["message"]
        assert status == 400 and message.startswith(f"{place} comes to ") and len(message) < 400
        assert f"at most {MAX_PROMPT_BYTES}" in message and server.engine.sent == []

    served(check, limits=replace(LIMITS, context_length=1 << 20), max_body_items=1 << 22)


@pytest.mark.parametrize("body", [
    {"input_ids": [1] * 127_000, "sampling_params": {"n": 128, "max_new_tokens": 1}},
    {"text": SIXTEENTH, "sampling_params": {"n": 16, "max_new_tokens": 1}},
], ids=["ids", "text"])  # fmt: skip
def test_a_long_prompt_with_many_samples_travels_once(body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        async with server.http.post("/generate", data=orjson.dumps(body)) as response:
            assert response.status == 200 and len(await response.json()) == body["sampling_params"]["n"]
        (message,) = server.engine.of_type(Generate)
        assert len(message.uids) == body["sampling_params"]["n"]

    served(check, limits=replace(LIMITS, context_length=1 << 20))
