"""`ramet bench stalls`: which gaps count, what a run's figures are, and one run from end to end."""

import json
from pathlib import Path

import pytest

from ramet.bench import stalls
from ramet.bench.stalls import StallRun, StallStream, middle


@pytest.mark.parametrize(
    ("start", "end", "longest"),
    [
        (0.0, 10.0, 4.0),  # all of them
        (2.5, 3.5, 2.0),  # the one that begins before and ends within
        (5.0, 6.0, 4.0),  # the one around it
        (8.5, 9.5, 1.5),  # from the last event on: nothing has come since
    ],
)
def test_a_gap_counts_that_lies_partly_in_the_span(start: float, end: float, longest: float):
    assert StallStream([1.0, 3.0, 4.0, 8.0]).longest_gap(start, end) == longest


def test_figures_are_medians():
    runs = [StallRun(gap, gap / 10, 1.0, {"server": gap}) for gap in (30.0, 10.0, 20.0)]
    assert middle(runs) == {
        "gap_ms": 20.0, "gaps_ms": [30.0, 10.0, 20.0], "reply_s": 2.0, "reply_mb": 1.0, "cpu_s": {"server": 20.0},
    }  # fmt: skip


def test_a_run_makes_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    tiny = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    monkeypatch.setattr(stalls, "SMALL", {**stalls.SMALL, **tiny, "intermediate_size": 64, "vocab_size": 512})
    names = ["256 best", "hidden states, streamed", "echo, 256 best"]
    chosen = [word for name in names for word in ("--variant", name)]
    lines = tmp_path / "lines.jsonl"
    argv = ["--rounds", "1", "--prompt-len", "200", "--streams", "2", *chosen, "--output-file", str(lines)]
    assert stalls.main(argv) == 0, capsys.readouterr()
    (record,) = map(json.loads, lines.read_text().splitlines())
    assert list(record["variants"]) == names and record["bench"] == "stalls"
    assert all(each["gap_ms"] > 0 and each["reply_mb"] >= 0.1 for each in record["variants"].values())
    assert "256 best" in capsys.readouterr().out
