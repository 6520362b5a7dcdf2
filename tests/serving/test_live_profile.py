"""Profiles of a live server: the file, by itself or when it is stopped, and what is refused."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from live import Live


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Live]:
    with Live(device="cpu", trace_dir=str(folder), max_total_tokens=20000, log_level="info") as live:
        yield live


def post(server: Live, path: str, body: Any = None) -> requests.Response:
    return requests.post(server.url + path, json=body, timeout=60)


def generate(server: Live, num: int) -> None:
    params = {"max_new_tokens": num, "temperature": 0, "ignore_eos": True}
    assert server.generate(text="The capital of France is", sampling_params=params).status_code == 200


def names(path: Path) -> list[str]:
    return [event.get("name", "") for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]


def scopes(path: Path) -> list[str]:
    return [name for name in names(path) if name.startswith("step ")]


def test_a_profile_has_the_operations_of_the_steps_until_it_is_stopped(server: Live, folder: Path):
    begun = post(server, "/start_profile", {"profile_prefix": "a", "profile_id": "1", "record_shapes": True})
    assert (begun.status_code, begun.text) == (200, "Start profiling.\n"), begun.text
    again = post(server, "/start_profile")
    assert again.status_code == 400 and "Profiling is already in progress. Call /stop_profile first." in again.text
    generate(server, 4)
    ended = post(server, "/stop_profile")
    path = folder / "a-1.trace.json.gz"
    assert ended.status_code == 200 and ended.text.split("\n")[1] == str(path), ended.text
    assert len(scopes(path)) >= 4 and any(name.startswith("aten::") for name in names(path))
    assert [each.name for each in folder.iterdir()] == [path.name]  # nothing is left of its making
    assert "is not in progress" in post(server, "/stop_profile").text
    taken = post(server, "/start_profile", {"profile_prefix": "a", "profile_id": "1"})
    assert taken.status_code == 400 and "is there already; choose another" in taken.text
    assert "profiler_start" not in server.output()  # torch's own lines


def test_a_profile_of_some_steps_ends_by_itself(server: Live, folder: Path):
    steps = server.state()["steps"]
    asked = {"profile_id": "some", "start_step": steps + 3, "num_steps": 2, "output_dir": str(folder / "deep" / "er")}
    assert post(server, "/start_profile", asked).status_code == 200
    generate(server, 8)
    path = folder / "deep" / "er" / "some.trace.json.gz"
    while f"a profile of 2 steps is in {path}" not in server.output():
        assert server.process.poll() is None
    assert {f"step {steps + 3}", f"step {steps + 4}"} <= set(scopes(path))
    for _ in range(2):
        told = post(server, "/stop_profile")
        assert told.status_code == 200 and told.text.split("\n")[1] == str(path)


def test_a_file_that_is_there_is_never_touched(server: Live, folder: Path):
    kept = folder.parent / "kept"
    kept.write_text("mine")
    for name in ("one.trace.json", "two.trace.json.gz"):
        (folder / name).symlink_to(kept)
    (folder / "three.trace.json.gz").symlink_to(folder / "nowhere")
    for name in ("two", "three"):
        assert "is there already" in post(server, "/start_profile", {"profile_id": name}).text
    assert post(server, "/start_profile", {"profile_id": "one"}).status_code == 200
    generate(server, 2)
    assert post(server, "/stop_profile").status_code == 200
    written = folder / "one.trace.json.gz"
    assert scopes(written) and written.stat().st_mode & 0o777 == 0o600
    assert kept.read_text() == "mine" and (folder / "one.trace.json").is_symlink()


def test_a_file_that_comes_meanwhile_is_not_overwritten(server: Live, folder: Path):
    assert post(server, "/start_profile", {"profile_id": "late"}).status_code == 200
    generate(server, 2)
    (folder / "late.trace.json.gz").write_text("mine")
    refused = post(server, "/stop_profile")
    assert refused.status_code == 400 and "late.trace.json.gz could not be written" in refused.text
    assert (folder / "late.trace.json.gz").read_text() == "mine"


def test_a_folder_that_vanished_is_said(server: Live, folder: Path):
    place = folder / "short-lived"
    assert post(server, "/start_profile", {"profile_id": "x", "output_dir": str(place)}).status_code == 200
    generate(server, 2)
    place.rmdir()
    refused = post(server, "/stop_profile")
    assert refused.status_code == 400 and f"{place}/x.trace.json.gz could not be written" in refused.text


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"output_dir": "/proc/x"}, "--trace-dir"),
        ({"output_dir": "LOOP"}, "output_dir"),
        ({"output_dir": ""}, "output_dir"),
        ({"profile_id": "../x"}, "profile_id"),
        ({"profile_id": "\u5b57" * 100}, "profile_id"),
        ({"num_steps": 0}, "num_steps"),
        ({"num_steps": 1001}, "num_steps"),
        ({"activities": ["RPD"]}, "activities"),
        ({"activities": ["GPU"]}, "runs on the CPU"),
        ({"profile_by_stage": True}, "profile_by_stage"),
        ({"profile_stages": ["prefill"]}, "profile_stages"),
        ({"detailed_annotations": True}, "detailed_annotations"),
    ],
)
def test_what_cannot_be_profiled_is_refused_by_name(server: Live, folder: Path, body: dict[str, Any], word: str):
    if body.get("output_dir") == "LOOP":
        body = {"output_dir": str(folder / "loop")}
        (folder / "loop").symlink_to(folder / "loop")
    refused = post(server, "/start_profile", body)
    assert refused.status_code == 400 and word in refused.text
    generate(server, 1)


def test_what_changes_the_server_does_not_answer_get(server: Live):
    for path in ("/start_profile", "/stop_profile"):
        assert requests.get(server.url + path, timeout=10).status_code == 405


def test_a_runner_that_computes_nothing_is_not_profiled():
    with Live(runner="scripted") as server:
        refused = post(server, "/start_profile")
        assert refused.status_code == 400 and "--runner scripted" in refused.text
