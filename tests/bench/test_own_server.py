"""A server that a bench starts for itself, and the CPU time of its processes. Real processes, no model."""

import json
import os
import shutil
from pathlib import Path

import pytest

from ramet.bench import intake, pipeline, startup
from ramet.bench.errors import BadOption
from ramet.bench.server import (
    BODY_READER,
    CONSTRAINTS,
    OF_GRAMMARS,
    RENDERER,
    ROLES,
    cpu_seconds,
    peak_bytes,
    proportional_bytes,
    started,
)

SCRIPTED = ["--runner", "scripted", "--log-level", "info"]


def test_a_start_tells_address_and_phases_and_leaves_no_process() -> None:
    with started(SCRIPTED) as server:
        assert pipeline.first_model(server.url)
        assert set(server.phases) == {"server", "tokenizer-0", "scheduler", "detokenizer"}
        spent = cpu_seconds(server.pid)
        assert set(spent) - {"renderer"} == set(ROLES), "a tokenizer starts a renderer when it is ready"
        assert all(spent[role] > 0 for role in ROLES)
        startup.ask(server.url)
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_a_server_that_cannot_start_is_told_with_its_own_words() -> None:
    told = r"did not start:\n.*--model-path /nowhere "
    with pytest.raises(BadOption, match=told), started(["--model-path", "/nowhere"]):
        pass


def test_a_timeout_of_the_measurement_is_not_taken_for_a_failed_start() -> None:
    with pytest.raises(TimeoutError, match="mine"), started(SCRIPTED):
        raise TimeoutError("mine")


def process(proc: Path, pid: int, parent: int, user: int, system: int, *command: str, name: str = "python") -> None:
    """A process as /proc shows it; times in clock ticks."""
    folder = proc / str(pid)
    folder.mkdir()
    before = "0 " * 9  # from the group's number to the children's page faults
    (folder / "stat").write_bytes(f"{pid} ({name}) S {parent} {before}{user} {system} 9 9 20 0".encode("latin-1"))
    (folder / "cmdline").write_text("".join(word + "\0" for word in command))


def test_cpu_time_and_memory_are_of_a_parents_children_by_role(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    process(tmp_path, 10, 1, 5 * tick, 0, "python", "-m", "ramet", "serve")
    process(tmp_path, 11, 10, 2 * tick, tick, "python", "/x", "scheduler", name="a (b) c")
    process(tmp_path, 12, 10, tick, 0, "python", "/x", "tokenizer-0")
    process(tmp_path, 13, 10, tick, tick, "python", "/x", "tokenizer-1")
    process(tmp_path, 14, 10, tick, 0, "python", "/x", "resource tracker")
    process(tmp_path, 15, 1, tick, 0, "python", "/x", "server", name="\xff")
    assert cpu_seconds(10, tmp_path) == {"scheduler": 3.0, "tokenizer": 3.0}
    process(tmp_path, 17, 10, tick, 0, "python", "/x", "server")
    process(tmp_path, 18, 17, tick, 0, "python", "-m", BODY_READER, "2")
    process(tmp_path, 19, 17, tick, 0, "python", "-m", "another")
    process(tmp_path, 20, 12, tick, 0, "python", "-m", RENDERER, "9")
    assert cpu_seconds(10, tmp_path) == {"scheduler": 3.0, "tokenizer": 3.0, "renderer": 1.0, "server": 2.0}
    process(tmp_path, 21, 11, tick, 0, "python", "-m", f"{OF_GRAMMARS}aside_process", "10")
    assert cpu_seconds(10, tmp_path)[CONSTRAINTS] == 1.0 + (9 + 9) / tick
    for pid in ("17", "20", "21"):
        shutil.rmtree(tmp_path / pid)
    for pid, size in ((11, 500), (12, 20), (13, 30)):
        (tmp_path / str(pid) / "status").write_text(f"Name:\tpython\nVmPeak:\t 9999 kB\nVmHWM:\t{size} kB\n")
    assert peak_bytes(10, tmp_path) == {"scheduler": 500 * 1024, "tokenizer": 50 * 1024}
    process(tmp_path, 16, 11, 0, 0, "python", "worker")
    for pid in (10, 11, 15, 16):
        (tmp_path / str(pid) / "smaps_rollup").write_text(f"Rss:  9999 kB\nPss:    {pid} kB\nPss_Anon: 5 kB\n")
    assert proportional_bytes(10, tmp_path) == (10 + 11 + 16) * 1024


def test_a_large_body_is_sent_and_others_are_asked_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "CASES", {"a text": intake.Case("/generate", lambda: {"text": "a" * (1 << 20)})})
    assert intake.main(["--rounds", "1", "--output-file", str(tmp_path / "out.jsonl"), "--", *SCRIPTED[2:]]) == 0
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    found = json.loads(line)["bodies"]["a text"]
    assert found["status"] == 400 and found["mib"] > 1 and found["server_s"] >= 0 and found["wait_s"] > 0
