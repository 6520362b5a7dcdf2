"""Over the whole table of routes: what changes the server takes its key, and never answers a GET.

A new route that is no GET is on the list of those that clients may use, or it is an administrator's.
"""

import re
from typing import Any

import pytest

from ramet.ipc.control import Control
from ramet.runtime.access.owner import Owner
from ramet.runtime.config import make_args
from ramet.runtime.server.http.keys import Keys
from ramet.runtime.server.http.service import Access
from ramet.runtime.server.routes import NAMED, ROUTES
from tests.fakes.server import Served, served

USER, ADMIN = {"Authorization": "Bearer user"}, {"Authorization": "Bearer admin"}
SHOW_ADMINS = {"/trace"}  # what administrators may read: it changes nothing, and its reply is theirs alone
ADMINS = sorted(path for path, route in ROUTES.items() if route.access is Access.ADMIN and path not in SHOW_ADMINS)
NAMED_ADMINS = sorted(prefix for prefix, named in NAMED.items() if named.access is Access.ADMIN)
FOR_CLIENTS = {  # what a client may send with the API key: it draws tokens, computes, or changes what this client has
    "/generate", "/open_session", "/close_session", "/language/generate", "/language/select",
    "/language/render", "/language/end",
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/embeddings", "/v1/score", "/score", "/v1/rerank", "/rerank", "/v1/classify",
    "/classify", "/pooling", "/encode", "/v1/tokenize", "/tokenize", "/v1/detokenize", "/detokenize",
}  # fmt: skip
CHANGE_NOTHING = {"/ping"}  # probes that may be sent as a POST
GETS_THAT_COMPUTE = {"/health_generate"}


def test_what_an_operator_does_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ramet")

    async def check(server: Served) -> None:
        server.engine.weights_error = "b has no\nconfig.json"
        for path, body in (
            ("/pause_generation", {"mode": "in_place"}), ("/continue_generation", {}), ("/flush_cache", b""),
            ("/update_weights_from_disk", {"model_path": "b\n" + "x" * 5000, "weight_version": "2"}),
            ("/update_weight_version", {"new_version": "3"}), ("/pause_generation", {"mode": 5}), ("/trace", {}),
        ):  # fmt: skip
            await server.post(path, body, headers=ADMIN)
        await server.post("/pause_generation", {}, headers=USER)
        await server.post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 1}}, headers=USER)

    served(check, api_key="user", admin_api_key="admin")
    lines = [re.sub(r"in [\d.]+ s", "in T", record.getMessage()) for record in caplog.records]
    assert lines[:3] == [
        "operator: POST /pause_generation mode='in_place': 200 in T",
        "operator: POST /continue_generation: 200 in T",
        "operator: POST /flush_cache: 200 in T",
    ]
    update, version, refused = lines[3:]
    assert update.startswith("operator: POST /update_weights_from_disk model_path='b\\nxxx")
    assert "weight_version='2': 400 in T: " in update and "b has no" in update
    assert "\n" not in update and len(update) <= 1000
    assert version == "operator: POST /update_weight_version new_version='3': 200 in T"
    assert refused.startswith("operator: POST /pause_generation: 400 in T: ") and "mode" in refused


def test_what_is_no_get_is_for_clients_or_for_administrators() -> None:
    changing = {path for path, route in (*ROUTES.items(), *NAMED.items()) if set(route.methods) - {"GET"}}
    assert changing - FOR_CLIENTS - CHANGE_NOTHING == {*ADMINS, *NAMED_ADMINS}
    assert changing >= FOR_CLIENTS | CHANGE_NOTHING  # none is listed that is not there


def test_what_clients_send_is_refused_to_pages_of_other_sites() -> None:
    table: dict[str, Any] = {**ROUTES, **NAMED}
    assert {path for path, route in table.items() if route.access is Access.USE} == FOR_CLIENTS | GETS_THAT_COMPUTE


@pytest.mark.parametrize("path", sorted(SHOW_ADMINS))
def test_what_administrators_may_read_wants_the_admin_key(path: str) -> None:
    async def check(server: Served) -> None:
        for headers, status in (({}, 401), (USER, 403)):
            async with server.http.get(path, headers=headers) as response:
                assert response.status == status
                assert "changes" not in await response.text()  # it changes nothing

    assert ROUTES[path].methods == ("GET",) and ROUTES[path].access is Access.ADMIN
    served(check, api_key="user", admin_api_key="admin")


@pytest.mark.parametrize("path", [*ADMINS, *NAMED_ADMINS])
def test_no_administrator_s_path_answers_get(path: str) -> None:
    assert not set((ROUTES.get(path) or NAMED[path]).methods) & {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize("path", ADMINS)
def test_an_administrator_s_path_wants_the_admin_key_and_a_method_that_changes_things(path: str) -> None:
    async def check(server: Served) -> None:
        for method in ROUTES[path].methods:
            for headers, status in (({}, 401), ({"Authorization": "Bearer no"}, 401), (USER, 403)):
                async with server.http.request(method, path, headers=headers, json={}) as response:
                    assert response.status == status, (method, headers)
        for method in ("GET", "HEAD", "DELETE", "PATCH"):
            async with server.http.request(method, path, headers=ADMIN) as response:
                assert response.status == 405, method
        assert server.engine.of_type(Control) == server.engine.sent == []

    served(check, api_key="user", admin_api_key="admin")


@pytest.mark.parametrize("path", ADMINS)
def test_without_keys_no_page_of_another_site_and_no_other_name_reaches_it(path: str) -> None:
    async def check(server: Served) -> None:
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
            for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
                sent = {**headers, "Content-Type": kind}
                async with server.http.post(path, headers=sent, data=b'{"abort_all": true}') as response:
                    assert response.status == 403, (headers, kind)
        assert server.engine.sent == []

    served(check)


def test_keys_are_looked_up_by_a_hash_that_nobody_else_can_make() -> None:
    """The time of a look-up says nothing of a key: what is compared differs between two servers with the same keys."""
    serve = make_args(api_key="user", admin_api_key="admin").serve
    one, other = Keys(serve, is_apart=False), Keys(serve, is_apart=False)
    assert set(one._own).isdisjoint(other._own) and {len(hashed) for hashed in one._own} == {32}
    assert one.owner([b"x", b"user"]) == Owner(is_admin=False) and one.owner([b"user", b"admin"]) == Owner()
    assert one.owner([b""]) is one.owner([]) is None
