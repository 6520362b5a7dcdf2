"""`ramet bench compiles`: which gaps count, how growth is taken, and one run from end to end."""

import json
from pathlib import Path

import pytest

from ramet.bench import compiles
from ramet.bench.compiles import MEDIAN, P99, QUIET, CompileStream, Window, summed


def test_gaps_count_inside_a_window_and_inside_a_request():
    stream = CompileStream([[1.0, 3.0, 4.0], [9.0, 9.5, 20.0]])
    assert stream.gaps(2.0, 10.0) == [1.0, 0.5]


def test_growth_is_that_over_the_quiet_window_of_the_same_round():
    quiet = [Window({MEDIAN: ms, P99: 2 * ms}, 10, {}) for ms in (10.0, 20.0, 40.0)]
    busy = [Window({MEDIAN: ms, P99: 40.0}, 10, {"504": 2}) for ms in (11.0, 26.0, 48.0)]
    figures = summed(busy, quiet)
    assert figures[MEDIAN] == {"ms": 26.0, "growth": 0.2, "growth_interval": [0.1, 0.3]}
    assert figures[P99]["growth"] == 0.0
    assert figures["ended"] == {"504": 6}


def test_a_run_makes_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    tiny = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    monkeypatch.setattr(compiles, "SMALL", {**compiles.SMALL, **tiny, "intermediate_size": 64})
    lines = tmp_path / "lines.jsonl"
    argv = ["--rounds", "1", "--window-s", "1", "--vocab-size", "600", "--kind", "killed, outlines"]
    assert compiles.main([*argv, "--output-file", str(lines)]) == 0, capsys.readouterr()
    (record,) = map(json.loads, lines.read_text().splitlines())
    assert list(record["windows"]) == [QUIET, "killed, outlines"]
    assert record["windows"][QUIET]["ended"] == {}
    assert sum(record["windows"]["killed, outlines"]["ended"].values()) >= 1
    assert record["windows"][QUIET][MEDIAN]["growth"] == 0.0
