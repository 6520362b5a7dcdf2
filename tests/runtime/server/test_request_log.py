"""The log of requests: its levels and formats, what is never in it, and /configure_logging."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from ramet.ipc.content import Content
from ramet.ipc.control import SetLogLevel
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.request_log import LogEntry, as_json
from ramet.runtime.log import LOGGER
from tests.fakes.engine import text_of
from tests.fakes.server import Served, served
from tests.fakes.specs import make_spec

LONG = "x" * 3000
BODY = {
    "text": LONG, "rid": "job", "cache_salt": "salt-secret",
    "sampling_params": {"max_new_tokens": 2, "stop": ["hidden"], "top_k": 5},
}  # fmt: skip


async def ask(server: Served, **more: Any) -> None:
    headers = {"Authorization": "Bearer key-secret"}
    async with server.http.post("/generate", json={**BODY, **more}, headers=headers) as response:
        assert response.status == 200, await response.text()
        await response.read()


def logged(folder: Path, *bodies: dict[str, Any], **options: Any) -> str:
    """What is in the file when these requests have ended."""

    async def check(server: Served) -> None:
        for body in bodies or ({},):
            await ask(server, **body)

    served(check, log_requests=True, log_requests_target=[str(folder)], api_key="key-secret", **options)
    return (folder / "requests.log").read_text() if folder.exists() and any(folder.iterdir()) else ""


def objects(folder: Path, *bodies: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    text = logged(folder, *bodies, log_requests_format="json", **options)
    return [json.loads(line) for line in text.splitlines()]


def test_json_has_an_object_for_the_arrival_and_one_for_the_end(tmp_path: Path) -> None:
    received, finished = objects(tmp_path)
    assert (received["event"], finished["event"]) == ("request.received", "request.finished")
    assert received["rid"] == finished["rid"] == "job" and received["timestamp"].endswith("Z")
    out = dict(finished["out"])
    assert out.pop("e2e_latency") >= 0
    assert out == {"finish_reason": "length", "prompt_tokens": 3000, "cached_tokens": 3, "completion_tokens": 2}


@pytest.mark.parametrize(
    ("level", "obj"),
    [
        (0, {}),
        (1, {"sampling_params": {"max_new_tokens": 2, "stop": 1, "top_k": 5}}),
        (2, {"sampling_params": {"max_new_tokens": 2, "stop": ["hidden"], "top_k": 5}, "text": LONG[:2048]}),
        (3, {"sampling_params": {"max_new_tokens": 2, "stop": ["hidden"], "top_k": 5}, "text": LONG}),
    ],
)
def test_a_level_says_what_of_a_request_is_logged(tmp_path: Path, level: int, obj: dict[str, Any]) -> None:
    received, finished = objects(tmp_path, log_requests_level=level)
    assert received["obj"] == finished["obj"] == obj
    assert finished["out"].get("text") == (text_of(1, 2) if level >= 2 else None)


def test_ids_and_every_sample_of_a_stream_are_logged(tmp_path: Path) -> None:
    body = {"text": None, "input_ids": [5, 6, 7], "stream": True, "sampling_params": {"n": 2, "max_new_tokens": 9}}
    received, *finished = objects(tmp_path, body, log_requests_level=2)
    assert received["obj"]["input_ids"] == [5, 6, 7] and received["rid"] == "job"
    assert {each["rid"]: each["out"]["text"] for each in finished} == {"job-0": text_of(1, 9), "job-1": text_of(2, 9)}


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_trace_of_a_request_is_in_its_lines(tmp_path: Path, form: str) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"

    async def check(server: Served) -> None:
        headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
        async with server.http.post("/generate", json=BODY, headers=headers) as response:
            assert response.status == 200

    served(check, log_requests=True, log_requests_target=[str(tmp_path)], log_requests_format=form)
    lines = (tmp_path / "requests.log").read_text().splitlines()
    assert lines and all(trace_id in line for line in lines)


@pytest.mark.parametrize("form", ["text", "json"])
def test_keys_and_salts_are_on_no_level(tmp_path: Path, form: str) -> None:
    text = logged(tmp_path, log_requests_level=3, log_requests_format=form)
    assert "job" in text and "secret" not in text


def test_a_text_line_has_texts_without_line_breaks(tmp_path: Path) -> None:
    (line,) = logged(tmp_path, {"text": "one\ntwo"}, log_requests_level=2).splitlines()
    assert line.startswith("Request job: length, 7 prompt tokens (3 cached), 2 new tokens, ")
    assert "top_k=5" in line and r"in='one\ntwo'" in line and "out=" in line


def test_a_text_line_of_the_lowest_level_has_no_parameters(tmp_path: Path) -> None:
    (line,) = logged(tmp_path, log_requests_level=0).splitlines()
    assert "2 new tokens" in line and "top_k" not in line and "xxx" not in line


def test_a_text_that_utf_8_cannot_write_is_escaped() -> None:
    """No body over HTTP has one, a program's prompt may."""
    prompt = Prompt("job", make_spec(), Content("a\ud800"))
    line = json.loads(as_json(LogEntry("request.received", "job", "", 0.25, prompt, {}, 2)))
    assert line["timestamp"] == "1970-01-01T00:00:00.250Z" and line["obj"]["text"] == "a\ud800"


def test_only_slow_requests_are_logged_where_that_is_asked(tmp_path: Path) -> None:
    assert logged(tmp_path / "slow", log_requests_min_ms=60_000) == ""
    assert len(objects(tmp_path / "all", log_requests_min_ms=0)) == 1  # the end alone: an arrival is not slow yet


def test_a_request_that_is_refused_ends_in_the_log(tmp_path: Path) -> None:
    async def check(server: Served) -> None:
        status, _ = await server.post("/generate", {"text": "REJECT"})
        assert status == 400

    served(check, log_requests=True, log_requests_target=[str(tmp_path)], log_requests_format="json")
    _, finished = [json.loads(line) for line in (tmp_path / "requests.log").read_text().splitlines()]
    assert finished["out"]["finish_reason"] == "abort"


class TestConfigureLogging:
    def test_only_what_is_given_changes(self, tmp_path: Path) -> None:
        async def check(server: Served) -> None:
            async def configure(**body: Any) -> None:
                async with server.http.post("/configure_logging", json=body) as response:
                    assert response.status == 200 and await response.read() == b""

            await ask(server, rid="unlogged")
            await configure(log_requests=True)
            await ask(server, rid="text")
            await configure(log_requests_format="json", log_requests_level=0)
            await ask(server, rid="json")
            await configure(log_requests=False, dump_requests_folder=None)
            await ask(server, rid="unlogged")

        served(check, log_requests_target=[str(tmp_path)])
        first, *rest = (tmp_path / "requests.log").read_text().splitlines()
        assert first.startswith("Request text: ") and "top_k=5" in first
        assert [(json.loads(line)["rid"], json.loads(line)["obj"]) for line in rest] == [("json", {})] * 2

    @pytest.mark.parametrize(
        "wrong",
        [{"log_level": "loud"}, {"log_level": 5}, {"log_requests_level": 4}, {"log_requests_level": -1},
         {"log_requests_format": "xml"}, {"log_requests": "yes"}],
    )  # fmt: skip
    def test_what_is_wrong_is_named_and_changes_nothing(self, wrong: dict[str, Any]) -> None:
        async def check(server: Served) -> None:
            before = server.client.request_log.settings
            status, reply = await server.post("/configure_logging", {"log_requests": True, **wrong})
            assert status == 400 and next(iter(wrong)) in reply["error"]["message"]
            assert server.client.request_log.settings == before

        served(check)

    @pytest.mark.parametrize(
        "field, value",
        [("dump_requests_folder", "/tmp/x"), ("dump_requests_threshold", 100), ("crash_dump_folder", "/tmp/x"),
         ("dump_requests_exclude_meta_keys", ["x"])],
    )  # fmt: skip
    def test_what_is_not_built_is_refused_by_name(self, field: str, value: Any) -> None:
        async def check(server: Served) -> None:
            status, reply = await server.post("/configure_logging", {field: value})
            assert status == 400 and field in reply["error"]["message"] and "not built" in reply["error"]["message"]

        served(check)

    def test_the_level_of_lines_changes_here_and_in_the_scheduler(self) -> None:
        async def check(server: Served) -> None:
            async with server.http.post("/configure_logging", json={"log_level": "ERROR"}) as response:
                assert response.status == 200
            assert LOGGER.level == logging.ERROR
            assert [message.level for message in server.engine.of_type(SetLogLevel)] == ["error"]

        before = LOGGER.level
        try:
            served(check)
        finally:
            LOGGER.setLevel(before)


def test_a_target_that_is_full_keeps_no_line_from_another_and_is_counted(tmp_path: Path) -> None:
    full, kept = tmp_path / "full", tmp_path / "kept"
    full.mkdir()
    (full / "requests.log").symlink_to("/dev/full")

    async def check(server: Served) -> None:
        for _ in range(3):
            await ask(server)
        server.client.request_log.close()
        async with server.http.get("/metrics") as response:
            assert 'ramet:log_lines_dropped_total{output="requests"} 3.0' in await response.text()

    served(check, log_requests=True, log_requests_target=[str(full), str(kept)])
    assert len((kept / "requests.log").read_text().splitlines()) == 3


def test_a_target_that_nobody_reads_keeps_no_line_from_another(tmp_path: Path) -> None:
    unread, kept = tmp_path / "unread", tmp_path / "kept"
    unread.mkdir()
    os.mkfifo(unread / "requests.log")

    async def check(server: Served) -> None:
        await ask(server)

    served(check, log_requests=True, log_requests_target=[str(unread), str(kept)])
    assert len((kept / "requests.log").read_text().splitlines()) == 1
