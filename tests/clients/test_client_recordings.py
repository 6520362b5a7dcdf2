"""Requests of clients that do not run here (tests/data/clients) against a server with a model, whole and streamed."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import Live

FOLDER = Path(__file__).parents[1] / "data" / "clients"
RECORDED = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
LIMITS = {
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/responses": "max_output_tokens",
    "/v1/messages": "max_tokens",
}
LAST = {"/v1/chat/completions": "[DONE]", "/v1/responses": "response.", "/v1/messages": "message_stop"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("recorded", RECORDED, ids=[each["client"] for each in RECORDED])
def test_a_recorded_request_is_answered(server: Live, recorded: dict[str, Any], stream: bool) -> None:
    path = recorded["path"]
    for request in recorded["requests"]:
        body = {**request, LIMITS[path]: 4, "stream": stream}
        body.pop("max_tokens" if path == "/v1/chat/completions" else "", None)
        reply = httpx.post(server.url + path, json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        if stream:
            assert LAST[path] in reply.text.strip().split("\n\n")[-1] and "response.failed" not in reply.text
        else:
            assert reply.json()["usage"]
