"""Every route against everybody who may ask: without a key, with the keys of two clients, with the admin key.

A new route is on none of these lists, so the first test fails until its author adds it to one.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ramet.runtime.server.routes import NAMED, ROUTES
from tests.fakes.server import Served, served

Headers = Mapping[str, str]
FOR_ALL = {"/", "/ui", "/ui/", "/health", "/ping", "/ready", "/version"}  # the same for all, without anybody's data
FOR_MONITORS = {"/metrics"}  # figures of all clients together: open, unless clients have keys of their own
FOR_CLIENTS = {  # computes for the client that asks, shows what is its own, or what is the same for all clients
    "/generate", "/open_session", "/close_session", "/language/generate", "/language/select", "/language/render",
    "/language/end", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/embeddings", "/v1/score", "/score", "/v1/rerank", "/rerank", "/v1/classify",
    "/classify", "/pooling", "/encode", "/v1/models", "/v1/models/", "/v1/tokenize", "/tokenize", "/v1/detokenize",
    "/detokenize", "/health_generate", "/get_model_info", "/model_info", "/get_server_info", "/server_info",
    "/openapi.json", "/v1/requests/",
}  # fmt: skip
FOR_ADMINS = {  # changes the server, or shows what it does for all of its clients
    "/v1/loads", "/flush_cache", "/abort_request", "/start_profile", "/stop_profile", "/trace", "/pause_generation",
    "/continue_generation", "/configure_logging", "/release_memory_occupation", "/resume_memory_occupation",
    "/slow_down", "/update_weights_from_disk", "/update_weight_version", "/load_lora_adapter", "/unload_lora_adapter",
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/ui/live", "/ui/history", "/ui/prefix", "/ui/node",
}  # fmt: skip
NONE, ADMIN, USER = {}, {"Authorization": "Bearer the-admin-key"}, {"Authorization": "Bearer the-api-key"}
A, B, WRONG = {"Authorization": "Bearer key-of-a"}, {"X-Api-Key": "key-of-b"}, {"Authorization": "Bearer key-of-c"}


def test_every_route_says_whom_it_is_for() -> None:
    lists = [FOR_ALL, FOR_MONITORS, FOR_CLIENTS, FOR_ADMINS]
    assert set.union(*lists) == {*ROUTES, *NAMED} and sum(map(len, lists)) == len(ROUTES) + len(NAMED)


async def refusal(server: Served, path: str, headers: Headers) -> int | None:
    """401 or 403, or None if the request was not refused because of its key."""
    methods = ROUTES[path].methods if path in ROUTES else NAMED[path].methods
    method, body = ("HEAD", None) if "GET" in methods else (methods[0], b"{}")
    named = path + "x" * (path in NAMED)
    async with server.http.request(method, named, headers=headers, data=body) as response:
        await response.read()
        return response.status if response.status in (401, 403) else None


async def check_all(server: Served, paths: set[str], **expected: int | None) -> None:
    who = {"none": NONE, "wrong": WRONG, "user": USER, "a": A, "b": B, "admin": ADMIN}
    for path in sorted(paths):
        found = {name: await refusal(server, path, who[name]) for name in expected}
        assert found == expected, path


def test_a_server_with_two_keys_shows_what_it_does_for_all_to_the_admin_key_alone() -> None:
    async def check(server: Served) -> None:
        await check_all(server, FOR_ALL | FOR_MONITORS, none=None, user=None, admin=None)
        await check_all(server, FOR_CLIENTS, none=401, wrong=401, user=None, admin=None)
        await check_all(server, FOR_ADMINS, none=401, wrong=401, user=403, admin=None)

    served(check, api_key="the-api-key", admin_api_key="the-admin-key")


def test_a_server_with_one_key_shows_everything_to_it() -> None:
    async def check(server: Served) -> None:
        await check_all(server, FOR_ALL | FOR_MONITORS, none=None, user=None)
        await check_all(server, FOR_CLIENTS | FOR_ADMINS, none=401, wrong=401, user=None)

    served(check, api_key="the-api-key")


def test_a_server_without_keys_shows_everything() -> None:
    async def check(server: Served) -> None:
        await check_all(server, {*ROUTES, *NAMED}, none=None, wrong=None)

    served(check)


def test_an_admin_key_alone_guards_what_the_server_does_for_all() -> None:
    async def check(server: Served) -> None:
        await check_all(server, FOR_ALL | FOR_MONITORS | FOR_CLIENTS, none=None, admin=None)
        await check_all(server, FOR_ADMINS, none=401, wrong=401, admin=None)
        assert (await server.get("/server_info"))[1]["internal_states"] == []

    served(check, admin_api_key="the-admin-key")


@pytest.mark.parametrize("path", ["/get_server_info", "/server_info"])
def test_what_runs_is_in_the_server_s_description_for_the_admin_key_alone(path: str) -> None:
    async def check(server: Served) -> None:
        assert (await server.get(path, headers=ADMIN))[1]["internal_states"] == [{"running_requests": 0, "steps": 1}]
        status, shown = await server.get(path, headers=USER)
        assert status == 200 and shown["internal_states"] == [] and shown["max_running_requests"] == 8

    served(check, api_key="the-api-key", admin_api_key="the-admin-key")


def test_a_prompt_s_tokens_cannot_be_guessed_from_the_cache_with_the_key_of_a_client() -> None:
    async def check(server: Served) -> None:
        for body in ({"input_ids": [1]}, {"input_ids": [1, 2, 3]}, {"text": "a"}, {}):
            assert (await server.post("/ui/prefix", body, headers=USER))[0] == 403
        assert server.engine.sent == []

    served(check, api_key="the-api-key", admin_api_key="the-admin-key")


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "keys"
    path.write_text("# of the clients\na key-of-a\nb key-of-b\n")
    path.chmod(0o600)
    return str(path)


def test_clients_with_keys_of_their_own_are_told_from_one_another_and_from_the_admin(key_file: str) -> None:
    async def check(server: Served) -> None:
        await check_all(server, FOR_ALL, none=None, a=None, b=None, admin=None)
        await check_all(server, FOR_CLIENTS, none=401, wrong=401, a=None, b=None, admin=None)
        await check_all(server, FOR_MONITORS | FOR_ADMINS, none=401, wrong=401, a=403, b=403, admin=None)

    served(check, api_key_file=key_file, admin_api_key="the-admin-key")
