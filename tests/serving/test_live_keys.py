"""A whole server whose clients have keys of their own: replies to one reveal nothing about another's requests."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from live import Live

PROMPT = "Once upon a time there was a queen who had three secrets, and the first of them was this: " * 3
REGEX = "the secret is [0-9]{3}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("a key-of-a\nb key-of-b\n")
    path.chmod(0o600)
    with Live(api_key_file=path, admin_api_key="the-admin-key", log_requests=True) as live:
        yield live


def ask(server: Live, key: str, path: str, body: Any = None) -> Any:
    method = "GET" if body is None else "POST"
    headers = {"Authorization": f"Bearer {key}"}
    return requests.request(method, server.url + path, json=body, headers=headers, timeout=60)


def cached(server: Live, key: str, **body: Any) -> int:
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 1}, **body}
    return int(ask(server, key, "/generate", body).json()["meta_info"]["cached_tokens"])


def test_a_prompt_that_one_key_has_computed_is_not_cached_for_another(server: Live) -> None:
    assert cached(server, "key-of-a") == 0
    assert cached(server, "key-of-a") > 50, "its own prompt is cached"
    assert cached(server, "key-of-b") == 0
    assert cached(server, "the-admin-key") == 0
    assert cached(server, "key-of-a", cache_salt="s") == 0 and cached(server, "key-of-b", cache_salt="s") == 0
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1}
    counts = [
        ask(server, key, "/v1/chat/completions", chat).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        for key in ("key-of-a", "key-of-a", "key-of-b")
    ]
    assert counts[0] < counts[1] > 50 and counts[2] < 50


def test_the_admin_finds_a_prompt_whoever_has_computed_it(server: Live) -> None:
    text = PROMPT + "only a has asked for this"
    cached(server, "key-of-a", text=text)
    found = ask(server, "the-admin-key", "/ui/prefix", {"text": text}).json()
    assert found["cached_tokens"] == found["num_tokens"] > 50
    assert ask(server, "key-of-b", "/ui/prefix", {"text": text}).status_code == 403


def test_a_constraint_is_compiled_for_each_key_by_itself(server: Live) -> None:
    for key in ("key-of-a", "key-of-b"):
        body = {"text": "a", "sampling_params": {"max_new_tokens": 30, "temperature": 0, "regex": REGEX}}
        assert ask(server, key, "/generate", body).json()["text"].startswith("the secret is ")


def test_the_log_names_the_holder_of_a_key_and_no_key(server: Live) -> None:
    ask(server, "key-of-b", "/generate", {"text": "a", "rid": "of-b", "sampling_params": {"max_new_tokens": 1}})
    while not (found := [line for line in list(server.lines) if "of-b" in line]):
        ask(server, "key-of-b", "/v1/models")  # a thread writes the log
    assert ", key b" in found[0] and "key-of" not in server.output() and "the-admin-key" not in server.output()
