"""How much one key may hold of what all clients share, and that others still get their share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ramet.ipc.messages import Generate, Render, Tokenize
from ramet.runtime.access.shares import SharedPlaces, part
from ramet.runtime.config import make_args, resolve
from ramet.runtime.errors import ConfigError
from ramet.runtime.server.http import session_tree
from tests.fakes.effort import num_calls
from tests.fakes.engine import LIMITS
from tests.fakes.server import Served, serving

ADMIN, A = {"Authorization": "Bearer the-admin-key"}, {"Authorization": "Bearer key-of-a"}
B = {"Authorization": "Bearer key-of-b"}
ONE_ROW = replace(LIMITS, max_running_requests=1)
BODY = {"text": "a", "sampling_params": {"max_new_tokens": 1}}


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "keys"
    path.write_text("a key-of-a\nb key-of-b\n")
    path.chmod(0o600)
    return {"api_key_file": str(path), "admin_api_key": "the-admin-key"}


@asynccontextmanager
async def shared(keys: dict[str, str], **options: Any) -> AsyncIterator[Served]:
    async with serving(auto=False, **keys, **options) as server:
        yield server


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def refused(server: Served, path: str, body: Any, headers: dict[str, str], what: str) -> None:
    """Check that the request is refused with the bound's name and a time to try again."""
    async with server.http.post(path, json=body, headers=headers) as response:
        message = (await response.json())["error"]["message"]
        assert response.status == 429 and response.headers["Retry-After"] == "1", message
        assert what in message and "--max-share-per-key" in message


async def waiting(server: Served, headers: dict[str, str], num: int) -> "list[asyncio.Task[tuple[int, Any]]]":
    """Requests of one sequence each, which are in the queue when this returns."""
    before = len(server.engine.of_type(Generate))
    tasks = [asyncio.create_task(server.post("/generate", BODY, headers=headers)) for _ in range(num)]
    await server.engine.saw(Generate, before + num)
    return tasks


async def answered(server: Served, *tasks: "asyncio.Task[tuple[int, Any]]") -> None:
    server.engine.step()
    assert [(await task)[0] for task in tasks] == [200] * len(tasks)


class TestQueue:
    def test_one_key_has_its_share_of_the_queue_and_others_theirs(self, keys: dict[str, str]) -> None:
        async def check() -> None:
            async with shared(keys, max_queued_requests=4, limits=ONE_ROW) as server:
                others = await waiting(server, ADMIN, 1)  # for the one row
                mine = await waiting(server, A, 2)
                await refused(server, "/generate", BODY, A, "may have 2 sequences in the queue at once")
                others += await waiting(server, B, 2)
                assert (await server.post("/generate", BODY, headers=ADMIN))[0] == 503, "the whole queue is full"
                await answered(server, *mine, *others)
                await answered(server, *await waiting(server, A, 2))

        run(check())

    def test_what_can_run_at_once_is_not_queued(self, keys: dict[str, str]) -> None:
        async def check() -> None:
            limits = replace(LIMITS, max_running_requests=4)
            async with shared(keys, max_queued_requests=8, max_share_per_key=0.25, limits=limits) as server:
                mine = await waiting(server, A, 6)  # 4 for the rows and 2 in the queue
                await refused(server, "/generate", BODY, A, "may have 2 sequences in the queue at once")
                others = await waiting(server, B, 2)
                await refused(server, "/generate", BODY, B, "may have 2 sequences in the queue at once")
                await answered(server, *mine, *others)

        run(check())

    def test_a_request_enters_whole_or_not_at_all(self, keys: dict[str, str]) -> None:
        async def check() -> None:
            async with shared(keys, max_queued_requests=4, limits=ONE_ROW) as server:
                many = {**BODY, "sampling_params": {"max_new_tokens": 1, "n": 4}}  # 2 in the queue and 1 that runs
                status, reply = await server.post("/generate", many, headers=A)
                assert status == 400 and "asks for 4 sequences" in reply["error"]["message"]
                assert "at most 3" in reply["error"]["message"]
                mine = [*await waiting(server, ADMIN, 1), *await waiting(server, A, 1)]
                many["sampling_params"]["n"] = 2
                await refused(server, "/generate", many, A, "this request asks for 2")
                await answered(server, *mine)

        run(check())

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/generate", {"text": ["a"] * 15_000, "sampling_params": [{"temperature": 0.5}] * 15_000}),
            ("/generate", {"text": ["a"] * 120, "sampling_params": [{"n": 128}] * 120}),
            ("/generate", {"input_ids": [[1]] * 15_000, "sampling_params": {"temperature": 0.5}}),
            ("/generate", {"input_embeds": [[[0.5]]] * 15_000}),
            ("/v1/completions", {"prompt": ["a"] * 15_000}),
        ],
    )
    def test_more_sequences_than_a_key_may_have_are_refused_by_their_number(
        self, path: str, body: dict[str, Any], keys: dict[str, str]
    ) -> None:
        async def check(body: dict[str, Any]) -> None:
            async with shared(keys, limits=ONE_ROW) as server:
                status, reply = await server.post(path, body, headers=A)
                assert status == 400 and "sequences (prompts times n), must be at most 33" in reply["error"]["message"]

        few = {name: value[:60] if isinstance(value, list) else value for name, value in body.items()}
        efforts = [num_calls(lambda sent=sent: run(check(sent))) for sent in (few, few, body)]
        assert efforts[2] < efforts[1] + 35_000, "a prompt of so many cost more than a look at its n"

    def test_a_chat_of_more_samples_than_a_key_may_have_is_not_rendered(self, keys: dict[str, str]) -> None:
        async def check() -> None:
            async with shared(keys, limits=ONE_ROW) as server:
                chat = {"messages": [{"role": "user", "content": "a"}], "n": 128}
                status, reply = await server.post("/v1/chat/completions", chat, headers=A)
                assert status == 400 and reply["error"]["param"] == "messages"
                assert "asks for 128 sequences" in reply["error"]["message"] and not server.engine.of_type(Render)

        run(check())

    def test_a_queue_without_a_bound_has_shares_as_well(self, keys: dict[str, str]) -> None:
        async def check() -> None:
            async with shared(keys, max_share_per_key=0.04, limits=ONE_ROW) as server:  # of 64 for the one row
                others = await waiting(server, ADMIN, 3)
                mine = await waiting(server, A, 2)
                await refused(server, "/generate", BODY, A, "may have 2 sequences in the queue at once")
                await answered(server, *mine, *others)

        run(check())

    def test_a_stream_and_every_surface_are_told_in_their_shape(self, keys: dict[str, str]) -> None:
        async def check() -> None:
            async with shared(keys, max_queued_requests=2, limits=ONE_ROW) as server:
                mine = [*await waiting(server, ADMIN, 1), *await waiting(server, A, 1)]
                chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
                for path, kind in (("/v1/chat/completions", "type"), ("/v1/messages", "type")):
                    for more in ({}, {"stream": True}):
                        status, reply = await server.post(path, {**chat, **more}, headers=A)
                        assert status == 429 and reply["error"][kind] == "rate_limit_error"
                await answered(server, *mine)

        run(check())


def test_one_key_has_its_share_of_the_connections(keys: dict[str, str]) -> None:
    async def check() -> None:
        async with shared(keys, max_connections=6, max_share_per_key=0.34) as server:
            for _ in range(3):  # a refused one is no longer answered
                assert (await server.post("/generate", {"text": 5}, headers=A))[0] == 400
            mine = await waiting(server, A, 2)
            await refused(server, "/tokenize", {"prompt": "a"}, A, "may have 2 requests that are answered at once")
            assert (await server.get("/health", headers=A))[0] == 200, "what needs no key is nobody's"
            for who in (B, ADMIN):
                assert (await server.get("/v1/models", headers=who))[0] == 200
            await answered(server, *mine)
            assert (await server.get("/v1/models", headers=A))[0] == 200

    run(check())


def test_a_connection_beyond_a_key_s_share_is_closed_and_makes_room_for_others(keys: dict[str, str]) -> None:
    async def check() -> None:
        async with shared(keys, max_connections=4) as server:
            mine = await waiting(server, A, 2)
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"POST /generate HTTP/1.1\r\nHost: a\r\nX-Api-Key: key-of-a\r\nContent-Length: 9\r\n\r\n{")
                reply = await reader.read()  # until the server closes
                assert reply.startswith(b"HTTP/1.1 429 ") and b"\r\nconnection: close\r\n" in reply.lower()
                writer.close()
            assert (await server.get("/v1/models", headers=B))[0] == 200
            await answered(server, *mine)

    run(check())


def test_one_key_has_its_share_of_the_memory_for_bodies(keys: dict[str, str]) -> None:
    async def check() -> None:
        async with shared(keys, max_body_mb=0.25, max_bodies_mb=0.25) as server:
            uploads = [await begin_upload(server, "key-of-a", 200_000) for _ in range(2)]  # 131072 bytes are its share
            (first, to_first), (second, to_second) = uploads
            to_second.write(b" " * 50_000)
            status = asyncio.create_task(second.readline())
            reader, writer = await begin_upload(server, "key-of-b", 140_000)
            writer.write(b" " * 50_000)
            assert (await reader.readline()).split()[1] == b"400" and not status.done()
            to_first.write(b" " * 50_000)
            assert [(await line).split()[1] for line in (first.readline(), status)] == [b"400", b"400"]
            for each in (to_first, to_second, writer):
                each.close()

    run(check())


async def begin_upload(server: Served, key: str, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a header and all but the last 50,000 bytes of a body; some of them have been received on return."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {key}\r\nContent-Length: {size}\r\n\r\n"
    writer.write(head.encode() + b" " * (size - 50_000))
    await writer.drain()
    assert (await server.get("/v1/models", headers=ADMIN))[0] == 200
    return reader, writer


def test_one_key_has_its_share_of_sessions_and_of_their_memory(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_tree, "MAX_SESSIONS", 4)

    async def check() -> None:
        async with shared(keys, sessions_mb=0.002) as server:  # 2097 bytes, of which 1048 are enough for one request
            for _ in range(2):
                assert (await server.post("/open_session", {}, headers=A))[0] == 200
            await refused(server, "/open_session", {}, A, "may have 2 sessions at once")
            _, session = await server.post("/open_session", {}, headers=B)
            large = {
                "input_ids": [5] * 200,
                "session_params": {"id": session},
                "sampling_params": {"max_new_tokens": 1},
            }
            await refused(server, "/generate", large, B, "may have 1048 bytes of sessions at once")
            _, session = await server.post("/open_session", {}, headers=ADMIN)
            large["session_params"]["id"] = session
            task = asyncio.create_task(server.post("/generate", large, headers=ADMIN))
            await server.engine.saw(Generate)
            await answered(server, task)

    run(check())


def test_with_one_key_there_are_no_shares() -> None:
    async def check() -> None:
        async with serving(auto=False, api_key="key-of-a", max_queued_requests=4, limits=ONE_ROW) as server:
            mine = await waiting(server, A, 5)
            assert (await server.post("/generate", BODY, headers=A))[0] == 503
            await answered(server, *mine)

    run(check())
    assert make_args().share_per_key == make_args(api_key="one").share_per_key == 1.0
    with pytest.raises(ConfigError, match="--max-share-per-key needs --api-key-file"):
        resolve(make_args(max_share_per_key=0.5))


def test_the_share_of_little_is_one() -> None:
    assert [part(whole, 0.3) for whole in (1, 3, 4, 10)] == [1, 1, 1, 3]


def test_the_share_is_a_half_unless_the_operator_says_otherwise(keys: dict[str, str]) -> None:
    assert resolve(make_args(**keys)).share_per_key == 0.5
    assert resolve(make_args(max_share_per_key=1, **keys)).share_per_key == 1.0


def test_a_tokenizer_is_told_whose_calls_it_gets(keys: dict[str, str]) -> None:
    async def check() -> None:
        async with serving(**keys) as server:
            for headers, owner in ((A, "a"), (ADMIN, "")):
                chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
                assert (await server.post("/v1/chat/completions", chat, headers=headers))[0] == 200
                assert (await server.post("/tokenize", {"prompt": "a"}, headers=headers))[0] == 200
                assert [server.engine.of_type(kind)[-1].owner for kind in (Render, Tokenize)] == [owner, owner]

    run(check())


def test_a_key_that_fills_its_places_leaves_some_to_another_one() -> None:
    async def check() -> None:
        places, entered, leaves = SharedPlaces(4, 0.5), list[str](), asyncio.Event()

        async def hold(name: str) -> None:
            async with places.one(name):
                entered.append(name)
                await leaves.wait()

        tasks = [asyncio.create_task(hold(name)) for name in ("a", "a", "a", "a", "b")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert entered == ["a", "a", "b"]
        leaves.set()
        await asyncio.gather(*tasks)
        assert len(entered) == 5

    run(check())
