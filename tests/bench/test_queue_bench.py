"""`ramet bench queue` builds the state that it names, and its situations are what they are called."""

import json
from pathlib import Path

import pytest

from ramet.bench.programs.queue import CONTEXT, QueuedCrowd, main


def test_so_many_run_wait_and_are_cached() -> None:
    crowd = QueuedCrowd(4, 30, 8000, room=4 * CONTEXT)
    sizes = crowd.sizes
    assert (sizes["running"], sizes["waiting"]) == (4, 30) and 7000 <= sizes["cached_tokens"] <= 9500
    first = next(iter(crowd.top.scheduler.running)).uid
    crowd.time_turns(1, crowd.end_one)
    assert crowd.sizes["waiting"] == 29 and crowd.top.scheduler.running.get(first) is None
    crowd.time_turns(1, lambda: crowd.arrive(3))
    assert crowd.sizes["waiting"] == 32


def test_a_full_pool_evicts_at_each_admission() -> None:
    crowd = QueuedCrowd(2, 6, 4000, room=0)
    before = crowd.top.scheduler.cache.evicted_tokens
    crowd.time_turns(3, crowd.end_one)
    assert crowd.top.scheduler.cache.evicted_tokens >= before + 3


def test_the_share_of_a_step_is_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines.jsonl"
    flags = ["--running", "2", "--waiting", "20", "--cached", "9000", "--turns", "3", "--step-ms", "40"]
    assert main([*flags, "--output-file", str(lines)]) == 0
    record = json.loads(lines.read_text())
    assert record["waiting"] == 20 and set(record["turns"]) == {"decode", "turnover", "arrivals", "eviction"}
    for each in record["turns"].values():
        assert each["share"] == pytest.approx(each["ms"] / 40, abs=1e-4)
    assert "of a step (asked: 2%" in capsys.readouterr().out
