"""The requests that Open WebUI sends, written by hand: it is not installed here."""

import json
from typing import Any

import pytest
import requests
from asked import CAPITAL, CAPITAL_ANSWER, CAPITAL_TOKENS, MODEL
from live import Live

KEY = {"Authorization": "Bearer any-key"}


def chat(**more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": CAPITAL}]
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "temperature": 0, **more}


@pytest.mark.parametrize("path", ["/v1/models", "/v1//models", "//v1/models"])
def test_models_are_listed_also_behind_doubled_slashes(server: Live, path: str):
    reply = requests.get(server.url + path, headers=KEY, timeout=30)
    assert reply.status_code == 200 and [model["id"] for model in reply.json()["data"]] == [MODEL]


def events(reply: requests.Response) -> list[dict[str, Any]]:
    lines = [line for line in reply.iter_lines() if line]
    assert reply.headers["Content-Type"].startswith("text/event-stream") and lines[-1] == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1//chat/completions"])
def test_a_streamed_chat_with_its_extra_fields_is_answered(server: Live, path: str):
    body = chat(
        stream=True,
        stream_options={"include_usage": True},
        params={},
        tool_servers=[],
        features={"web_search": False, "image_generation": False},
        variables={"{{USER_NAME}}": "Anna"},
        session_id="session",
        chat_id="chat",
        id="message",
        background_tasks={"title_generation": True, "tags_generation": True},
    )
    with requests.post(server.url + path, headers=KEY, json=body, stream=True, timeout=30) as reply:
        *chunks, last = events(reply)
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == CAPITAL_ANSWER
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == CAPITAL_TOKENS


def test_a_task_in_the_background_is_answered_whole(server: Live):
    metadata = {"task": "title_generation", "task_body": chat(), "chat_id": None}
    body = chat(stream=False, max_completion_tokens=1000, metadata=metadata)
    reply = requests.post(server.url + "/v1/chat/completions", headers=KEY, json=body, timeout=30).json()
    assert reply["choices"][0]["message"]["content"] == CAPITAL_ANSWER


def test_an_error_has_a_message_to_show(server: Live):
    reply = requests.post(server.url + "/v1/chat/completions", json=chat(model="other"), timeout=30)
    assert reply.status_code == 404 and MODEL in reply.json()["error"]["message"]
