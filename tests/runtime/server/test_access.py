"""Who may ask what: the two keys, pages of other sites, names that are not this server's."""

import asyncio
import socket
from typing import Any

import pytest

from ramet.ipc.control import Control
from ramet.ipc.messages import Generate
from ramet.runtime.server.http.service import Access
from ramet.runtime.server.routes import NAMED, ROUTES
from tests.fakes.server import Served, served

USER, ADMIN = {"Authorization": "Bearer user"}, {"Authorization": "Bearer admin"}
BODY = {"text": "a", "sampling_params": {"max_new_tokens": 1}}
FOREIGN = "http://evil.example"


async def status_of(server: Served, method: str, path: str, headers: dict[str, str], **options: Any) -> int:
    async with server.http.request(method, path, headers=headers, **options) as response:
        await response.read()
        return response.status


async def raw(server: Served, head: str) -> tuple[int, str]:
    """The status and the whole reply to a request that no client would write."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.replace("\n", "\r\n").encode() + b"Connection: close\r\n\r\n")
    reply = (await reader.read()).decode()
    writer.close()
    return int(reply.split()[1]), reply


class TestKeys:
    def test_what_changes_the_server_takes_only_the_admin_key(self) -> None:
        async def check(server: Served) -> None:
            for path, body in (("/abort_request", {"abort_all": True}), ("/abort_request", {"rid": "x"})):
                assert (await server.post(path, body, headers=ADMIN))[0] == 200
                status, reply = await server.post(path, body, headers=USER)
                assert status == 403 and "--admin-api-key" in reply["error"]["message"]
                for headers in ({}, {"Authorization": "Bearer other"}):
                    status, reply = await server.post(path, body, headers=headers)
                    assert status == 401 and "admin key" in reply["error"]["message"]
            assert await status_of(server, "POST", "/flush_cache", USER) == 403
            assert server.engine.of_type(Control) == []
            assert await status_of(server, "POST", "/flush_cache", {"X-Api-Key": "admin"}) == 200

        served(check, api_key="user", admin_api_key="admin")

    def test_the_admin_key_opens_everything_else_as_well(self) -> None:
        async def check(server: Served) -> None:
            for headers in (USER, ADMIN):
                assert (await server.post("/generate", BODY, headers=headers))[0] == 200
                assert (await server.get("/v1/models", headers=headers))[0] == 200
            async with server.http.post("/generate", json=BODY) as response:
                assert response.status == 401 and response.headers["WWW-Authenticate"] == "Bearer"

        served(check, api_key="user", admin_api_key="admin")

    def test_without_an_admin_key_the_api_key_opens_all(self) -> None:
        async def check(server: Served) -> None:
            assert (await server.post("/abort_request", {"rid": "x"}, headers=USER))[0] == 200
            assert await status_of(server, "POST", "/flush_cache", USER) == 200
            assert await status_of(server, "POST", "/flush_cache", {}) == 401

        served(check, api_key="user")

    def test_an_admin_key_alone_leaves_the_rest_open(self) -> None:
        async def check(server: Served) -> None:
            assert (await server.post("/generate", BODY))[0] == 200
            assert (await server.post("/generate", BODY, headers={"Origin": FOREIGN}))[0] == 403
            assert await status_of(server, "POST", "/flush_cache", {}) == 401
            assert await status_of(server, "POST", "/flush_cache", ADMIN) == 200

        served(check, admin_api_key="admin")

    def test_neither_key_is_shown(self) -> None:
        async def check(server: Served) -> None:
            _, info = await server.get("/server_info", headers=ADMIN)
            assert info["api_key"] == info["admin_api_key"] == "set"

        served(check, api_key="user", admin_api_key="admin")

    def test_every_route_but_probes_and_the_page_asks_for_the_key(self) -> None:
        needs_none = {path for path, route in ROUTES.items() if route.access is Access.OPEN}
        assert needs_none == {"/health", "/ready", "/ping", "/version", "/", "/ui"}
        assert {prefix for prefix, named in NAMED.items() if named.access is Access.OPEN} == {"/ui/"}


class TestOrigins:
    @pytest.mark.parametrize(
        "origin",
        [FOREIGN, "https://127.0.0.1.evil.example", "http://localhost.evil.example", "null", "", "file://",
         "http://localhost http://evil.example", "http://evil.example@localhost", "ftp://localhost", "localhost",
         "http://localhost/", "http://[::2]", "http://localhost:x", "http://0.0.0.0"],
    )  # fmt: skip
    def test_a_page_of_another_site_drives_nothing(self, origin: str) -> None:
        async def check(server: Served) -> None:
            for method, path, kind in (
                ("POST", "/generate", "text/plain"), ("PUT", "/generate", "application/json"),
                ("POST", "/v1/chat/completions", "text/plain"), ("POST", "/v1/messages", "text/plain"),
                ("POST", "/flush_cache", ""), ("POST", "/abort_request", ""), ("GET", "/health_generate", ""),
                ("DELETE", "/v1/responses/x", ""), ("POST", "/tokenize", ""),
            ):  # fmt: skip
                headers = {"Origin": origin, "Content-Type": kind}
                async with server.http.request(method, path, json=None, data=b"{}", headers=headers) as response:
                    message = (await response.json())["error"]["message"]
                    assert response.status == 403, (path, message)
                    assert "Origin" in message and repr(origin) in message and "--allowed-origins" in message
                    assert "Access-Control-Allow-Origin" not in response.headers
            assert server.engine.sent == []

        served(check)

    @pytest.mark.parametrize(
        "origin", ["http://localhost", "http://LOCALHOST:3000", "https://127.0.0.1:8443", "http://[::1]:5173"]
    )
    def test_a_page_of_this_machine_may_ask(self, origin: str) -> None:
        async def check(server: Served) -> None:
            assert (await server.post("/generate", BODY, headers={"Origin": origin}))[0] == 200

        served(check)

    @pytest.mark.parametrize(
        "origin, host, status",
        [
            ("http://10.1.2.3:30000", "10.1.2.3:30000", 200),
            ("https://llm.example", "llm.example", 200),  # behind a proxy that ends TLS
            ("https://llm.example", "llm.example:443", 200),
            ("http://llm.example", "llm.example.:80", 200),
            ("http://llm.example", "llm.example:8080", 403),
            ("http://llm.example:8080", "llm.example", 403),
            ("http://10.1.2.4", "10.1.2.3", 403),
        ],
    )
    def test_a_page_that_came_from_this_server_may_ask(self, origin: str, host: str, status: int) -> None:
        async def check(server: Served) -> None:
            assert (await server.post("/generate", BODY, headers={"Origin": origin, "Host": host}))[0] == status

        served(check, allowed_hosts=["llm.example"])

    def test_listed_origins_may_ask_and_no_others(self) -> None:
        async def check(server: Served) -> None:
            for origin, status in (
                ("https://chat.example", 200), ("https://CHAT.example:443", 200), ("app://obsidian.md", 200),
                ("http://chat.example", 403), ("https://chat.example:8443", 403), ("https://x.chat.example", 403),
            ):  # fmt: skip
                assert (await server.post("/generate", BODY, headers={"Origin": origin}))[0] == status, origin

        served(check, allowed_origins=["https://chat.example", "app://obsidian.md"])

    def test_reading_is_not_refused(self) -> None:
        """The browser keeps the reply from the page, for it has no header that allows the origin."""

        async def check(server: Served) -> None:
            for path in ("/v1/models", "/health", "/server_info", "/metrics"):
                async with server.http.get(path, headers={"Origin": FOREIGN}) as response:
                    assert response.status == 200 and "Access-Control-Allow-Origin" not in response.headers

        served(check)

    def test_several_origins_are_foreign(self) -> None:
        async def check(server: Served) -> None:
            head = (
                "POST /flush_cache HTTP/1.1\nHost: localhost\nOrigin: http://localhost\nOrigin: http://evil.example\n"
            )
            assert (await raw(server, head))[0] in (400, 403)
            assert server.engine.sent == []

        served(check)

    def test_a_key_that_is_right_is_enough(self) -> None:
        async def check(server: Served) -> None:
            headers = {**USER, "Origin": FOREIGN, "Host": "evil.example"}
            assert (await server.post("/generate", BODY, headers=headers))[0] == 200
            assert (await server.post("/generate", BODY, headers={"Origin": FOREIGN}))[0] == 401

        served(check, api_key="user")


class TestHosts:
    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:30000", "localhost.evil.example", "127.0.0.1.evil.example", "127.1",
                 "[::1", "a b", "evil@127.0.0.1", "127.0.0.1:x", "localhost, localhost", "2130706433", "xlocalhost"],
    )  # fmt: skip
    def test_a_rebound_name_is_refused(self, host: str) -> None:
        async def check(server: Served) -> None:
            for method, path in (("POST", "/generate"), ("GET", "/v1/models"), ("GET", "/nowhere")):
                async with server.http.request(method, path, headers={"Host": host}) as response:
                    message = (await response.json())["error"]["message"]
                    assert response.status == 403, (path, message)
                    assert "Host" in message and repr(host) in message and "--allowed-hosts" in message
            for probe in ("/health", "/ready", "/ping", "/metrics", "/version"):
                assert await status_of(server, "GET", probe, {"Host": host}) == 200

        served(check)

    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "10.3.2.1:30000", "[::1]:80", "[2001:db8::5]", "LOCALHOST", "localhost.:30000",
                 socket.gethostname(), socket.gethostname().upper() + ".", socket.getfqdn(), "box.lan"],
    )  # fmt: skip
    def test_addresses_and_the_names_of_this_machine_are_fine(self, host: str) -> None:
        async def check(server: Served) -> None:
            assert await status_of(server, "GET", "/v1/models", {"Host": host}) == 200

        served(check, host="box.lan")

    @pytest.mark.parametrize(
        "allowed, hosts, others",
        [
            (["ramet", "LLM.example."], ["ramet:30000", "llm.example", "Llm.Example.:1"], ["x.llm.example", "example"]),
            ([".svc.local"], ["a.svc.local", "a.b.svc.local:80"], ["svc.local", "asvc.local", "a.svc.local.evil"]),
            (["*.svc.local"], ["a.svc.local"], ["svc.local"]),
            (["*"], ["evil.example", "a.b:80"], []),
        ],
    )
    def test_allowed_hosts_are_fine(self, allowed: list[str], hosts: list[str], others: list[str]) -> None:
        async def check(server: Served) -> None:
            for host in hosts:
                assert await status_of(server, "GET", "/v1/models", {"Host": host}) == 200, host
            for host in others:
                assert await status_of(server, "GET", "/v1/models", {"Host": host}) == 403, host

        served(check, allowed_hosts=allowed)

    def test_no_header_stands_in_for_the_host(self) -> None:
        async def check(server: Served) -> None:
            headers = {"Host": "evil.example", "X-Forwarded-Host": "localhost", "Forwarded": "host=localhost"}
            assert await status_of(server, "GET", "/v1/models", headers) == 403
            assert await status_of(server, "GET", "/v1/models", {"X-Forwarded-Host": "evil.example"}) == 200

        served(check)

    @pytest.mark.parametrize(
        "head, statuses",
        [
            ("GET /v1/models HTTP/1.0\n", (200,)),  # no browser leaves the Host out
            ("GET /v1/models HTTP/1.1\nHost: localhost\nHost: evil.example\n", (400, 403)),
            ("GET /v1/models HTTP/1.1\nHost: evil.example\nHost: localhost\n", (400, 403)),
            ("GET http://evil.example/v1/models HTTP/1.1\nHost: localhost\n", (403,)),
            ("GET http://localhost/v1/models HTTP/1.1\nHost: evil.example\n", (403,)),
            ("GET http://localhost:30000/v1/models HTTP/1.1\nHost: localhost:30000\n", (200,)),
        ],
    )
    def test_every_name_in_a_request_counts(self, head: str, statuses: tuple[int, ...]) -> None:
        async def check(server: Served) -> None:
            status, reply = await raw(server, head)
            assert status in statuses, reply

        served(check)

    @pytest.mark.parametrize("path, key", [("/v1/models", "code"), ("/v1/messages", "type"), ("/generate", "message")])
    def test_a_refusal_has_the_shape_of_its_path(self, path: str, key: str) -> None:
        async def check(server: Served) -> None:
            status, reply = await server.post(path, BODY, headers={"Host": "evil.example"})
            assert status == 403 and key in reply["error"]

        served(check)


def test_a_running_request_is_not_touched_by_what_is_refused() -> None:
    async def check(server: Served) -> None:
        running = asyncio.create_task(server.post("/generate", {**BODY, "rid": "x"}))
        await server.engine.saw(Generate)
        refused, _ = await server.post("/abort_request", {"abort_all": True}, headers={"Origin": FOREIGN})
        assert refused == 403
        server.engine.step()
        assert (await running)[0] == 200

    served(check, auto=False)
