"""What one key's holder has, no other key can find, read, continue or end, except the admin key."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ramet.ipc.messages import Abort, Generate, ProgramsEnded
from ramet.runtime.access.key_file import NamedKey, read_key_file
from ramet.runtime.access.owner import Owner
from ramet.runtime.config import make_args
from ramet.runtime.server.http import keys as keys_of_clients
from ramet.runtime.server.http.keys import Keys
from tests.fakes.media import TAKES_MEDIA, FakeMedia
from tests.fakes.server import Served, serving

ADMIN, A = {"Authorization": "Bearer the-admin-key"}, {"Authorization": "Bearer key-of-a"}
B, BOTH = {"X-Api-Key": "key-of-b"}, {"Authorization": "Bearer key-of-a", "X-Api-Key": "the-admin-key"}
ONE = {"max_new_tokens": 1}
SALTED = {"text": "a", "cache_salt": "s", "extra_key": "e", "sampling_params": {"max_new_tokens": 1, "regex": "a"}}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("a key-of-a\nb key-of-b\n")
    path.chmod(0o600)
    return path


@asynccontextmanager
async def shared(keys: Path, **options: Any) -> AsyncIterator[Served]:
    async with serving(api_key_file=str(keys), admin_api_key="the-admin-key", **options) as server:
        yield server


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


class TestRequests:
    def test_only_its_owner_and_the_admin_see_where_a_request_is(self, keys: Path) -> None:
        async def check() -> None:
            async with shared(keys, auto=False) as server:
                body = {"text": "a", "rid": "x", "sampling_params": ONE}
                running = asyncio.create_task(server.post("/generate", body, headers=A))
                await server.engine.saw(Generate)
                statuses = [(await server.get("/v1/requests/x", headers=who))[0] for who in (A, ADMIN, B)]
                assert statuses == [200, 200, 404]
                server.engine.step()
                assert (await running)[0] == 200

        run(check())

    def test_two_keys_may_name_their_requests_alike(self, keys: Path) -> None:
        async def check() -> None:
            async with shared(keys, auto=False) as server:
                body = {"text": "a", "rid": "x", "sampling_params": ONE}
                both = [asyncio.create_task(server.post("/generate", body, headers=who)) for who in (A, B)]
                await server.engine.saw(Generate, 2)
                for who, num in ((A, 1), (B, 1), (ADMIN, 2)):
                    _, state = await server.get("/v1/requests/x", headers=who)
                    assert len(state["sequences"]) == num
                assert (await server.post("/abort_request", {"rid": "x"}, headers=B))[0] == 403
                assert (await server.post("/abort_request", {"rid": "x"}, headers=ADMIN))[1] == {"aborted": 2}
                assert len((await server.engine.saw(Abort))[0].uids) == 2
                server.engine.step()
                await asyncio.gather(*both)

        run(check())


class TestSessions:
    @staticmethod
    def of(session: str, **more: Any) -> dict[str, Any]:
        return {"text": "a", "session_params": {"id": session}, "sampling_params": ONE, **more}

    def test_a_session_is_its_owner_s(self, keys: Path) -> None:
        async def check() -> None:
            async with shared(keys) as server:
                assert (await server.post("/open_session", {"session_id": "s"}, headers=A))[1] == "s"
                assert (await server.post("/generate", self.of("s", rid="t"), headers=A))[0] == 200
                follow = {"text": "b", "session_params": {"id": "s", "rid": "t"}, "sampling_params": ONE}
                status, reply = await server.post("/generate", follow, headers=B)
                assert status == 400 and "does not exist" in reply["error"]["message"]
                async with server.http.post("/close_session", json={"session_id": "s"}, headers=B) as response:
                    assert response.status == 200  # the answer for an unknown session
                for who in (A, ADMIN):
                    assert (await server.post("/generate", follow, headers=who))[0] == 200

        run(check())

    def test_two_keys_may_name_their_sessions_alike(self, keys: Path) -> None:
        async def check() -> None:
            async with shared(keys) as server:
                for who in (A, B):
                    assert (await server.post("/open_session", {"session_id": "s"}, headers=who))[0] == 200
                    assert (await server.post("/open_session", {"session_id": "s"}, headers=who))[0] == 400
                async with server.http.post("/close_session", json={"session_id": "s"}, headers=A):
                    pass
                statuses = [(await server.post("/generate", self.of("s"), headers=who))[0] for who in (A, B)]
                assert statuses == [400, 200]

        run(check())

    def test_what_the_admin_adds_to_a_session_is_its_owner_s(self, keys: Path) -> None:
        async def check() -> None:
            async with shared(keys) as server:
                await server.post("/open_session", {"session_id": "s"}, headers=A)
                assert (await server.post("/generate", self.of("s"), headers=ADMIN))[0] == 200
                (sent,) = server.engine.of_type(Generate)
                assert sent.spec.key_name == "a" and sent.spec.namespace == ("", "", "", "key a")

        run(check())


def test_a_stored_response_is_its_owner_s(keys: Path) -> None:
    async def check() -> None:
        async with shared(keys) as server:
            server.engine.says = ["Hi"]
            _, reply = await server.post("/v1/responses", {"input": "Hello"}, headers=A)
            path, follow = f"/v1/responses/{reply['id']}", {"input": "b", "previous_response_id": reply["id"]}
            for tail in ("", "/input_items"):
                assert [(await server.get(path + tail, headers=who))[0] for who in (A, ADMIN, B)] == [200, 200, 404]
            assert (await server.post("/v1/responses", follow, headers=B))[0] == 404
            async with server.http.delete(path, headers=B) as response:
                assert response.status == 404
            assert (await server.post("/v1/responses", follow, headers=A))[0] == 200
            async with server.http.delete(path, headers=ADMIN) as response:
                assert response.status == 200
            assert (await server.get(path, headers=A))[0] == 404

    run(check())


def test_a_program_is_ended_for_its_owner_alone(keys: Path) -> None:
    async def check() -> None:
        async with shared(keys) as server:
            body = {"prompt": ["a"], "sampling_params": ONE, "follow_up": {"program": "p", "state": 0}}
            assert (await server.post("/language/generate", body, headers=A))[0] == 200
            assert server.engine.of_type(Generate)[0].spec.follow_up.owner == "a"
            await server.post("/language/end", {"programs": ["p"]}, headers=B)
            assert server.engine.of_type(ProgramsEnded) == [ProgramsEnded(["p"], "b")]

    run(check())


class TestIsolation:
    def test_each_key_has_a_cache_of_its_own(self, keys: Path) -> None:
        async def check() -> None:
            async with shared(keys) as server:
                for who in (A, B, ADMIN, BOTH):
                    assert (await server.post("/generate", SALTED, headers=who))[0] == 200
                specs = [sent.spec for sent in server.engine.of_type(Generate)]
                owners = ["a", "b", "admin", "admin"]
                assert [spec.namespace for spec in specs] == [("", "s", "e", f"key {owner}") for owner in owners]
                assert [spec.key_name for spec in specs] == owners
                assert [spec.scope for spec in specs] == [f"key {owner}" for owner in owners]

        run(check())

    def test_pictures_are_prepared_for_the_key_that_sent_them(self, keys: Path) -> None:
        media = FakeMedia()

        async def check() -> None:
            async with shared(keys, limits=TAKES_MEDIA, media=media) as server:
                for who in (A, ADMIN):
                    body = {"text": "<image>", "image_data": "a.png", "sampling_params": ONE}
                    assert (await server.post("/generate", body, headers=who))[0] == 200

        run(check())
        assert media.owners == [Owner("a", False, True), Owner("admin", True, True)]

    def test_without_isolation_what_is_cached_is_shared_and_what_clients_have_is_not(self, keys: Path) -> None:
        async def check() -> None:
            async with shared(keys, cache_isolation="none") as server:
                for who in (A, B):
                    assert (await server.post("/generate", SALTED, headers=who))[0] == 200
                first, second = [sent.spec for sent in server.engine.of_type(Generate)]
                assert first.namespace == second.namespace == ("", "s", "e") and first.constraint == second.constraint
                assert (first.key_name, second.key_name) == ("a", "b") and first.scope == second.scope == ""

        run(check())

    def test_without_a_file_of_keys_nothing_is_told_apart(self) -> None:
        async def check() -> None:
            async with serving(api_key="key-of-a", admin_api_key="the-admin-key") as server:
                for who in (A, ADMIN):
                    assert (await server.post("/generate", SALTED, headers=who))[0] == 200
                for sent in server.engine.of_type(Generate):
                    assert sent.spec.key_name == "" and sent.spec.namespace == ("", "s", "e")

        run(check())


class TestChangesOfTheFile:
    @staticmethod
    def of(keys: Path) -> Keys:
        return Keys(make_args(api_key_file=str(keys), admin_api_key="the-admin-key").serve, is_apart=True)

    @staticmethod
    def owners(found: Keys) -> list[str | None]:
        owners = [found.owner([key]) for key in (b"key-of-a", b"key-of-b", b"key-of-c")]
        return [None if owner is None else owner.name for owner in owners]

    def test_a_key_opens_the_server_from_the_next_look_on_and_one_that_is_gone_no_longer(
        self, keys: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "ramet")
        os.utime(keys, ns=(0, 0))
        found = self.of(keys)
        assert self.owners(found) == ["a", "b", None]
        keys.write_text("a key-of-c\nb key-of-b\n")  # the same size
        found.refresh()
        assert self.owners(found) == [None, "b", "a"] and "it has 2 keys now" in caplog.text
        assert found.owner([b"the-admin-key"]) == Owner("admin", True, True)

    def test_a_file_that_takes_the_place_of_another_is_read(self, keys: Path) -> None:
        found, other = self.of(keys), keys.with_name("other")
        other.write_text("a key-of-c\nb key-of-b\n")
        other.chmod(0o600)
        os.utime(other, ns=(0, keys.stat().st_mtime_ns))
        os.replace(other, keys)
        found.refresh()
        assert self.owners(found) == [None, "b", "a"]

    def test_a_change_while_the_file_is_read_is_seen_later(self, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def read_before_a_change(path: str, admin_key: str) -> list[NamedKey]:
            found = read_key_file(path, admin_key)
            keys.write_text("a key-of-c\n")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(keys_of_clients, "read_key_file", read_before_a_change)
            found = self.of(keys)
        assert self.owners(found) == ["a", "b", None]
        found.refresh()
        assert self.owners(found) == [None, None, "a"]

    def test_a_server_looks_at_the_file_again_and_again(self, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keys_of_clients, "LOOK_EVERY_S", 0.0)

        async def check() -> None:
            async with shared(keys) as server:
                for name in ("key-of-c", "key-of-d"):
                    keys.write_text(f"c {name}\n")
                    while (await server.get("/v1/models", headers={"X-Api-Key": name}))[0] != 200:
                        pass
                assert (await server.get("/v1/models", headers=A))[0] == 401

        run(check())

    @pytest.mark.parametrize("bad", ["", "a key-of-a\nkey-of-b\n", None])
    def test_a_file_that_cannot_be_read_changes_nothing(
        self, keys: Path, bad: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        found = self.of(keys)
        if bad is None:
            keys.unlink()
        else:
            keys.write_text(bad)
        for _ in range(3):
            found.refresh()
        assert self.owners(found) == ["a", "b", None]
        assert caplog.text.count("its former keys stay valid") == 1 and "key-of" not in caplog.text
