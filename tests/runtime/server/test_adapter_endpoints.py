"""Adapters over HTTP: loading and unloading, their names in requests and in /v1/models, and what is refused."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from ramet.ipc.control import DropAdapter, LoadAdapter
from ramet.ipc.messages import Generate
from ramet.ipc.spec import AdapterRef
from tests.fakes.server import Served, served

LOAD, UNLOAD, GENERATE = "/load_lora_adapter", "/unload_lora_adapter", "/generate"


def folders(where: Path, *names: str) -> tuple[str, ...]:
    for name in names:
        (where / name).mkdir()
    return tuple(f"{name}={where / name}" for name in names)


def changes(server: Served) -> list[Any]:
    return [message for _, message in server.engine.sent if isinstance(message, LoadAdapter | DropAdapter)]


def refs(server: Served) -> list[AdapterRef | None]:
    return [message.spec.lora for message in server.engine.of_type(Generate)]


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_an_adapter_is_loaded_listed_used_and_unloaded(tmp_path: Path, prefix: str) -> None:
    async def check(server: Served) -> None:
        folder = str(tmp_path)
        status, reply = await server.post(prefix + LOAD, {"lora_name": "a", "lora_path": folder, "pinned": True})
        assert (status, reply) == (200, {"success": True, "error_message": "", "loaded_adapters": {"a": folder}})
        _, listed = await server.get("/v1/models")
        assert [(card["id"], card["root"], card["parent"]) for card in listed["data"]][1:] == [("a", folder, "x")]
        assert (await server.get("/v1/models/a"))[1] == listed["data"][1]
        assert (await server.post(GENERATE, {"text": "b", "lora_path": "a"}))[0] == 200
        status, reply = await server.post(prefix + UNLOAD, {"lora_name": "a"})
        assert (status, reply["success"], reply["loaded_adapters"]) == (200, True, {})
        status, reply = await server.post(GENERATE, {"text": "b", "lora_path": "a"})
        assert status == 400 and "lora_path" in reply["error"]["message"] and "'a'" in reply["error"]["message"]
        loaded, dropped = changes(server)
        assert isinstance(loaded, LoadAdapter) and loaded.pinned and loaded.path == folder
        assert (
            isinstance(dropped, DropAdapter) and dropped.generation == loaded.generation == refs(server)[0].generation
        )

    served(check, served_model_name="x")


def test_a_scrape_names_the_adapters_of_who_runs_and_of_who_waits(tmp_path: Path) -> None:
    async def check(server: Served) -> None:
        for name in ("a", "b", "c"):
            await server.post(LOAD, {"lora_name": name, "lora_path": str(tmp_path)})
        two = {"max_new_tokens": 2}
        runs = asyncio.create_task(server.post(GENERATE, {"text": "b", "lora_path": "a", "sampling_params": two}))
        await server.engine.saw(Generate)
        server.engine.step()
        waits = asyncio.create_task(server.post(GENERATE, {"text": "b", "lora_path": "c", "sampling_params": two}))
        await server.engine.saw(Generate, 2)
        async with server.http.get("/metrics") as reply:
            page = await reply.text()
        (line,) = re.findall(r"^vllm:lora_requests_info{(.*)} ", page, re.MULTILINE)
        assert 'running_lora_adapters="a"' in line and 'waiting_lora_adapters="c"' in line
        server.engine.step()
        server.engine.step()
        server.engine.step()
        assert [(await each)[0] for each in (runs, waits)] == [200, 200]

    served(check, auto=False, metrics_compat=["vllm"])


CHOSEN = [
    ({"model": "a"}, "a", "a"),
    ({"model": "x:a"}, "x:a", "a"),
    ({"model": "default:b", "lora_path": "a"}, "default:b", "b"),
    ({"model": "x", "lora_path": "b"}, "x", "b"),
    ({"lora_path": ""}, "x", None),
    ({}, "x", None),
]


@pytest.mark.parametrize(("fields", "answered", "adapter"), CHOSEN)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages"])
def test_a_model_s_name_may_be_an_adapter_s(
    tmp_path: Path, path: str, fields: dict[str, Any], answered: str, adapter: str | None
) -> None:
    async def check(server: Served) -> None:
        asked = {"prompt": "p"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "p"}]}
        status, reply = await server.post(path, {**asked, "max_tokens": 2, **fields})
        assert status == 200 and reply["model"] == answered
        (ref,) = refs(server)
        assert (None if ref is None else ref.name) == adapter

    served(check, served_model_name="x", lora_paths=folders(tmp_path, "a", "b"))


@pytest.mark.parametrize("name", ["c", "x:c", "y:a", ":a", "x:"])
def test_another_name_is_not_found(tmp_path: Path, name: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/v1/completions", {"prompt": "p", "model": name})
        assert status == 404 and repr(name) in reply["error"]["message"] and "are a" in reply["error"]["message"]

    served(check, served_model_name="x", lora_paths=folders(tmp_path, "a"))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "p"}),
        ("/v1/score", {"text_1": "p", "text_2": "q"}),
        ("/v1/rerank", {"query": "p", "documents": ["q"]}),
    ],
)
def test_an_endpoint_without_adapters_says_so(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, {**body, "model": "a"})
        assert status == 404 and "model is 'a', an adapter" in reply["error"]["message"]
        assert "not built for this endpoint" in reply["error"]["message"]

    served(check, served_model_name="x", lora_paths=folders(tmp_path, "a"))


@pytest.mark.parametrize(("path", "field"), [(GENERATE, "text"), ("/v1/completions", "prompt")])
def test_each_prompt_may_have_its_own(tmp_path: Path, path: str, field: str) -> None:
    async def check(server: Served) -> None:
        names = ["a", None, "b", "a", ""]
        status, _ = await server.post(path, {field: list("pqrst"), "lora_path": names})
        assert status == 200
        got = refs(server)
        assert [None if ref is None else ref.name for ref in got] == ["a", None, "b", "a", None]
        spaces = [message.spec.namespace for message in server.engine.of_type(Generate)]
        assert spaces == [("1", "", ""), (), ("2", "", ""), ("1", "", ""), ()]
        status, reply = await server.post(path, {field: ["p", "q"], "lora_path": ["a"]})
        assert status == 400 and "lora_path" in reply["error"]["message"]
        status, reply = await server.post(path, {field: ["p", "q"], "lora_path": ["a", "nobody"]})
        assert status == 400 and "nobody" in reply["error"]["message"] and "lora_path" in reply["error"]["message"]

    served(check, served_model_name="x", lora_paths=folders(tmp_path, "a", "b"))


def test_a_salt_stays_beside_the_generation(tmp_path: Path) -> None:
    async def check(server: Served) -> None:
        await server.post(GENERATE, {"text": "p", "lora_path": "a", "cache_salt": "s", "extra_key": "k"})
        assert server.engine.of_type(Generate)[0].spec.namespace == ("1", "s", "k")

    served(check, lora_paths=folders(tmp_path, "a"))


def test_another_load_of_a_name_has_another_generation(tmp_path: Path) -> None:
    async def check(server: Served) -> None:
        body = {"lora_name": "a", "lora_path": str(tmp_path / "a")}
        status, reply = await server.post(LOAD, body)
        assert status == 400 and "is loaded" in reply["error_message"] and not reply["success"]
        await server.post(GENERATE, {"text": "p", "lora_path": "a"})
        assert (await server.post(LOAD, {**body, "load_inplace": True}))[0] == 200
        await server.post(GENERATE, {"text": "p", "lora_path": "a"})
        before, after = (ref.generation for ref in refs(server) if ref is not None)
        assert before != after
        assert [type(each) for each in changes(server)] == [LoadAdapter, DropAdapter]
        assert changes(server)[1].generation == before

    served(check, lora_paths=folders(tmp_path, "a"))


REFUSED = [
    ({"lora_name": "a:b"}, ("lora_name", "'a:b'", "colon")),
    ({"lora_name": "x"}, ("lora_name", "'x'", "model")),
    ({"lora_name": "default"}, ("lora_name", "'default'", "model")),
    ({"lora_path": "/no/such/folder"}, ("lora_path", "/no/such/folder", "outside", "--lora-dir")),
    ({"lora_path": "{dir}/../other"}, ("lora_path", "outside", "--lora-dir")),
    ({"lora_path": "{dir}/nothing"}, ("lora_path", "is not a folder")),
    ({"lora_path": "{dir}/link"}, ("lora_path", "outside", "--lora-dir")),
]


@pytest.mark.parametrize(("fields", "pieces"), REFUSED)
def test_what_cannot_be_loaded_is_named(tmp_path: Path, fields: dict[str, str], pieces: tuple[str, ...]) -> None:
    inside, other = tmp_path / "inside", tmp_path / "other"
    inside.mkdir(), other.mkdir()
    (inside / "link").symlink_to(other)
    asked = {name: value.replace("{dir}", str(inside)) for name, value in fields.items()}

    async def check(server: Served) -> None:
        status, reply = await server.post(LOAD, {"lora_name": "n", "lora_path": str(inside), **asked})
        assert status == 400 and not reply["success"] and reply["loaded_adapters"] == {}
        assert all(piece in reply["error_message"] for piece in pieces), reply["error_message"]
        assert not changes(server)

    served(check, served_model_name="x", lora_dir=str(inside))


def test_what_the_engine_refuses_is_not_there_afterwards(tmp_path: Path) -> None:
    async def check(server: Served) -> None:
        server.engine.flush_ok = False
        status, reply = await server.post(LOAD, {"lora_name": "n", "lora_path": str(tmp_path)})
        assert status == 400 and "requests are running" in reply["error_message"]
        assert (await server.post("/v1/completions", {"prompt": "p", "model": "n"}))[0] == 404
        status, reply = await server.post(UNLOAD, {"lora_name": "n"})
        assert status == 400 and "'n'" in reply["error_message"] and "no adapter is loaded" in reply["error_message"]

    served(check)


def test_only_the_admin_key_changes_them(tmp_path: Path) -> None:
    async def check(server: Served) -> None:
        for path, body in ((LOAD, {"lora_name": "n", "lora_path": str(tmp_path)}), (UNLOAD, {"lora_name": "n"})):
            assert (await server.post(path, body, headers={"Authorization": "Bearer user"}))[0] == 403
            assert (await server.post(path, body, headers={"Authorization": "Bearer admin"}))[0] == 200

    served(check, api_key="user", admin_api_key="admin")
