"""Pages of other origins in Chromium, with its own preflights, against real servers."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from browser import fetches, shows
from live import Live

pytestmark = pytest.mark.slow
FOREIGN = "page.test"
BODY = {"text": "Hello", "sampling_params": {"max_new_tokens": 8}}
STREAMED = {"prompt": "a", "max_tokens": 8, "ignore_eos": True, "stream": True}
JSON = {"Content-Type": "application/json"}
KEYED = {**JSON, "Authorization": "Bearer secret", "X-Stainless-Lang": "js", "X-Request-Id": "mine"}


def post(body: Any, headers: dict[str, str], **options: Any) -> dict[str, Any]:
    return {"method": "POST", "headers": headers, "body": json.dumps(body), **options}


def text(answer: dict[str, Any]) -> str:
    return "".join(answer["chunks"])


@pytest.fixture(scope="module")
def plain() -> Iterator[Live]:
    """A server without options."""
    with Live(runner="scripted") as live:
        yield live


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def answered(live: Live, path: str, status: int) -> bool:
    name = f'ramet:http_requests_total{{endpoint="{path}",status="{status}"}}'
    return name in requests.get(live.url + "/metrics", timeout=10).text


def test_a_page_of_another_origin_is_refused_by_default(plain: Live, tmp_path: Path) -> None:
    url = plain.url
    asked = [
        (url + "/generate", post(BODY, JSON)),
        (url + "/v1/models", {}),
        (url + "/generate", post(BODY, {"Content-Type": "text/plain"}, mode="no-cors")),  # without a preflight
        (url + "/flush_cache", {"method": "POST", "mode": "no-cors"}),
    ]
    json_post, models, blind_post, flush = fetches(FOREIGN, asked, tmp_path)
    assert json_post == models == {"error": "TypeError"}
    assert blind_post["type"] == flush["type"] == "opaque" and text(blind_post) == ""
    assert answered(plain, "/generate", 403) and answered(plain, "/flush_cache", 403)
    assert not answered(plain, "/generate", 200) and not answered(plain, "/flush_cache", 200)


def test_a_page_of_this_machine_needs_no_option(plain: Live, tmp_path: Path) -> None:
    (answer,) = fetches("localhost", [(plain.url + "/v1/completions", post({"prompt": "a"}, JSON))], tmp_path)
    assert answer["type"] == "cors" and answer["status"] == 200 and json.loads(text(answer))["choices"]


def test_a_rebound_name_shows_nothing(plain: Live, tmp_path: Path) -> None:
    shown = shows(plain.url.replace("127.0.0.1", FOREIGN) + "/v1/models", FOREIGN, tmp_path)
    assert "not known as a name of this server" in shown and FOREIGN in shown and "ramet-bundled" not in shown


@pytest.mark.parametrize("origins", [f"http://{FOREIGN}:PORT", "*"])
def test_an_allowed_page_fetches_json_streams_and_errors(origins: str, tmp_path: Path, free_port: int) -> None:
    with Live(runner="scripted", api_key="secret", allowed_origins=origins.replace("PORT", str(free_port))) as live:
        asked = [
            (live.url + "/generate", post(BODY, KEYED)),
            (live.url + "/generate", {**post(BODY, KEYED), "method": "PUT"}),
            (live.url + "/v1/completions", post(STREAMED, KEYED)),
            (live.url + "/v1/models", {"headers": KEYED}),
            (live.url + "/v1/responses/x", {"method": "DELETE", "headers": KEYED}),
            (live.url + "/v1/chat/completions", post({"messages": 5}, KEYED)),
            (live.url + "/v1/messages", post({}, {**KEYED, "Authorization": "Bearer wrong"})),
        ]
        answers = fetches(FOREIGN, asked, tmp_path, port=free_port)
    whole, put, stream, models, deleted, malformed, unknown = answers
    assert [answer["status"] for answer in answers] == [200, 200, 200, 200, 404, 400, 401]
    assert json.loads(text(whole))["text"] and json.loads(text(put))["text"]
    assert whole["headers"]["x-request-id"] == "mine"
    events = text(stream).split("\n\n")
    assert stream["headers"]["content-type"].startswith("text/event-stream") and events[-2] == "data: [DONE]"
    assert len(events) > 8 and json.loads(text(models))["data"]
    for answer, fact in ((deleted, "No response"), (malformed, "messages"), (unknown, "API key")):
        assert fact in json.loads(text(answer))["error"]["message"]
