"""Pages of other origins, as the Fetch standard has browsers ask (sections 4.8 to 4.10): preflight, request, check."""

from collections.abc import Mapping
from typing import Any

import pytest

from ramet.runtime.server.routes import ROUTES
from tests.fakes.server import Served, served

PAGE = "https://chat.example"
SAFE_METHODS = ("GET", "HEAD", "POST")
CLIENT_HEADERS = {  # of openai-node and @anthropic-ai/sdk in a browser
    "Authorization": "Bearer key",
    "Content-Type": "application/json",
    "X-Api-Key": "key",
    "X-Request-Id": "mine",
    "Anthropic-Version": "2023-06-01",
    "Anthropic-Beta": "tools",
    "OpenAI-Organization": "org",
    "X-Stainless-Retry-Count": "0",
    "X-Stainless-Lang": "js",
}
BODY = {"text": "a", "sampling_params": {"max_new_tokens": 1}}


class Blocked(Exception):
    """A network error: the page learns nothing."""


def cors_check(headers: Mapping[str, str], origin: str, with_credentials: bool) -> None:
    """Section 4.10 of the standard."""
    allowed = headers.get("Access-Control-Allow-Origin")
    if allowed is None:
        raise Blocked("no Access-Control-Allow-Origin")
    if not with_credentials and allowed == "*":
        return
    if allowed != origin:
        raise Blocked(f"Access-Control-Allow-Origin is {allowed}")
    if with_credentials and headers.get("Access-Control-Allow-Credentials") != "true":
        raise Blocked("no Access-Control-Allow-Credentials")


def words(headers: Mapping[str, str], name: str) -> set[str]:
    return {word.strip() for word in headers.get(name, "").split(",")} - {""}


async def preflight(
    server: Served, origin: str, method: str, path: str, names: list[str], with_credentials: bool
) -> None:
    """Section 4.8: CORS-preflight fetch. `names`: of the request's headers that are not safelisted."""
    asked = {"Origin": origin, "Access-Control-Request-Method": method, "Accept": "*/*"}
    if names:
        asked["Access-Control-Request-Headers"] = ",".join(sorted(name.lower() for name in names))
    async with server.http.options(path, headers=asked) as reply:
        cors_check(reply.headers, origin, with_credentials)
        if not 200 <= reply.status <= 299:
            raise Blocked(f"the preflight was answered with {reply.status}")
        methods = words(reply.headers, "Access-Control-Allow-Methods")
        any_word = "*" if not with_credentials else None
        if method not in methods and method not in SAFE_METHODS and any_word not in methods:
            raise Blocked(f"{method} is not allowed")
        allowed = {name.lower() for name in words(reply.headers, "Access-Control-Allow-Headers")}
        for name in map(str.lower, names):
            if name not in allowed and (any_word not in allowed or name == "authorization"):
                raise Blocked(f"{name} is not allowed")


async def fetch(
    server: Served,
    origin: str,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] = CLIENT_HEADERS,
    with_credentials: bool = False,
) -> tuple[int, bytes, dict[str, str]]:
    """What a page gets of fetch(): status, body, and the headers that it may read, by their lower-case names."""
    await preflight(server, origin, method, path, list(headers), with_credentials)
    async with server.http.request(method, path, json=body, headers={**headers, "Origin": origin}) as reply:
        cors_check(reply.headers, origin, with_credentials)
        exposed = {name.lower() for name in words(reply.headers, "Access-Control-Expose-Headers")}
        shown = {name.lower(): value for name, value in reply.headers.items() if name.lower() in exposed}
        return reply.status, await reply.read(), shown


@pytest.mark.parametrize("key", ["", "key"])
def test_a_listed_page_fetches_json_and_streams_and_reads_errors(key: str) -> None:
    async def check(server: Served) -> None:
        status, body, headers = await fetch(server, PAGE, "POST", "/generate", BODY)
        assert status == 200 and b'"text"' in body and headers["x-request-id"] == "mine"
        status, body, _ = await fetch(server, PAGE, "POST", "/generate", {**BODY, "stream": True})
        assert status == 200 and body.endswith(b"data: [DONE]\n\n")
        status, body, _ = await fetch(server, PAGE, "POST", "/v1/chat/completions", {"messages": 5})
        assert status == 400 and b"messages" in body
        status, body, _ = await fetch(server, PAGE, "POST", "/v1/nowhere", BODY)
        assert status == 404 and b"/v1/nowhere" in body
        if key:
            wrong = {**CLIENT_HEADERS, "Authorization": "Bearer wrong", "X-Api-Key": "wrong"}
            status, body, _ = await fetch(server, PAGE, "POST", "/v1/messages", BODY, wrong)
            assert status == 401 and b"key" in body

    served(check, allowed_origins=[PAGE], api_key=key)


@pytest.mark.parametrize("key", ["", "key"])
@pytest.mark.parametrize("origin", [PAGE, "null"])
def test_a_page_is_refused_by_default(origin: str, key: str) -> None:
    async def check(server: Served) -> None:
        with pytest.raises(Blocked, match="no Access-Control-Allow-Origin"):
            await fetch(server, origin, "POST", "/generate", BODY)
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        async with server.http.options("/v1/chat/completions", headers=asked) as reply:
            assert reply.status == 403
            message = (await reply.json())["error"]["message"]
            assert repr(origin) in message and "--allowed-origins" in message
            assert not [name for name in reply.headers if name.startswith("Access-Control-")]
        assert server.engine.sent == []

    served(check, api_key=key)


def test_pages_of_this_machine_fetch_without_an_option() -> None:
    async def check(server: Served) -> None:
        for origin in ("http://localhost:3000", "http://127.0.0.1:5173", "https://[::1]"):
            assert (await fetch(server, origin, "POST", "/generate", BODY))[0] == 200

    served(check)


def test_any_page_without_credentials() -> None:
    async def check(server: Served) -> None:
        for origin in (PAGE, "null"):
            assert (await fetch(server, origin, "POST", "/generate", BODY))[0] == 200
            with pytest.raises(Blocked):
                await fetch(server, origin, "POST", "/generate", BODY, with_credentials=True)

    served(check, allowed_origins=["*"])


def test_a_listed_page_with_credentials() -> None:
    async def check(server: Served) -> None:
        assert (await fetch(server, PAGE, "POST", "/generate", BODY, with_credentials=True))[0] == 200

    served(check, allowed_origins=["*", PAGE])


def test_every_path_and_method_has_its_preflight() -> None:
    async def check(server: Served) -> None:
        for path in (*ROUTES, "/v1/models/x", "/v1/responses/x/cancel", "/nowhere", "//v1//models/"):
            for method in ("GET", "POST", "PUT", "DELETE"):
                path = f"http://127.0.0.1:{server.port}{path}" if path[0] == "/" else path
                await preflight(server, PAGE, method, path, list(CLIENT_HEADERS), with_credentials=True)
        assert server.engine.sent == []

    served(check, allowed_origins=[PAGE], api_key="key", admin_api_key="admin")


def test_a_preflight_has_no_body_and_says_what_it_varies_with() -> None:
    async def check(server: Served) -> None:
        asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
        local = {**asked, "Access-Control-Request-Private-Network": "true"}
        async with server.http.options("/generate", headers=asked) as reply:
            assert reply.status == 204 and await reply.read() == b"" and "Content-Type" not in reply.headers
            assert int(reply.headers["Access-Control-Max-Age"]) > 0
            assert "Origin" in words(reply.headers, "Vary")
            assert "Access-Control-Allow-Private-Network" not in reply.headers
        async with server.http.options("/generate", headers=local) as reply:
            assert reply.headers["Access-Control-Allow-Private-Network"] == "true"

    served(check, allowed_origins=[PAGE])


def test_replies_to_pages_vary_with_the_origin() -> None:
    async def check(server: Served) -> None:
        for origin in (PAGE, "https://other.example"):
            async with server.http.get("/v1/models", headers={"Origin": origin}) as reply:
                assert words(reply.headers, "Vary") == {"Origin"}
                assert ("Access-Control-Allow-Origin" in reply.headers) == (origin == PAGE)

    served(check, allowed_origins=[PAGE])


def test_a_plain_options_is_no_preflight() -> None:
    async def check(server: Served) -> None:
        async with server.http.options("/generate") as reply:
            assert reply.status == 405

    served(check)
