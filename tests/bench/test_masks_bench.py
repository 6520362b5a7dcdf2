"""`ramet bench masks`: which steps count, and one run of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from ramet.bench.kernels import masks
from ramet.bench.kernels.masks import ALL_JSON, MaskTime, summed


def run(tmp_path: Path, *argv: str) -> dict[str, Any]:
    lines = tmp_path / "lines.jsonl"
    small = ["--vocab-size", "1000", "--rows", "4", "--steps", "8", "--output-file", str(lines)]
    assert masks.main([*small, *argv]) == 0
    (record,) = map(json.loads, lines.read_text().splitlines())
    return record


def test_a_run_has_a_line_for_each_case(tmp_path: Path):
    record = run(tmp_path, "--backend", "llguidance", "--case", "city", "--case", ALL_JSON, "--case", "arithmetic")
    assert list(record["backends"]["llguidance"]) == ["city", ALL_JSON, "arithmetic"]
    for figures in record["backends"]["llguidance"].values():
        assert figures["steps"] >= 8
        assert 0 < figures["filling_us"]["median"] < figures["making_us"]["max"]


def test_what_a_backend_cannot_compile_is_said(tmp_path: Path):
    record = run(tmp_path, "--backend", "outlines", "--case", "arithmetic", "--case", "ip")
    figures = record["backends"]["outlines"]
    assert "ebnf" in figures["arithmetic"]["refused"], figures and figures["ip"]["steps"] >= 8


def test_figures_are_quantiles_of_steps():
    steps = [MaskTime(float(i), 1.0, float(i + 1), 6.0, 3.0) for i in range(101)]
    figures = summed(steps)
    assert figures["filling_us"] == {"median": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}
    assert figures["applying_in_reads"] == 2.0


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        masks.main(["--case", "nothing"])
    assert "invalid choice" in capsys.readouterr().err
