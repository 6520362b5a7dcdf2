"""`ramet bench watching` at a small size: what it measures of whom, and the tree that it fills."""

import json
from pathlib import Path

import pytest
from live import Live

from ramet.bench import watching


@pytest.mark.slow
def test_a_run_compares_nobody_and_one_viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "watching.jsonl"
    monkeypatch.setattr(watching, "WINDOW_S", 0.5)
    sizes = ["--nodes", "300", "--streams", "2", "--output-len", "40", "--rounds", "1", "--windows", "1"]
    assert watching.main([*sizes, "--output-file", str(output)]) == 0
    (record,) = map(json.loads, output.read_text().splitlines())
    assert list(record["variants"]) == ["nobody looks", "one viewer"]
    assert record["variants"]["nobody looks"]["cpu_ratio"]["median"] == 1.0
    assert list(record["cpu_ms_per_s"]) == ["nobody looks", "one viewer"]
    assert record["cpu_ms_per_s"]["one viewer"].keys() == {"server", "tokenizer", "scheduler", "detokenizer"}
    assert record["viewer"]["events"] >= 1 and record["viewer"]["nodes"] > 300


def test_the_tree_has_the_nodes_that_were_asked_for() -> None:
    with Live(runner="scripted", log_level="warning") as server:
        watching.fill(server.url, 250)
        assert watching._tree_of(server.url)["num_nodes"] >= 250
