"""`ramet bench delta`: one small run."""

import json
from pathlib import Path

import pytest

from ramet.bench.kernels import delta
from ramet.kernels.cpu import limits


@pytest.mark.usefixtures("two_threads")
def test_a_run_has_a_rate_and_a_share_of_the_limit_for_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROUNDS", 1)
    monkeypatch.setattr(limits, "LOOP_S", 1e-4)
    lines = tmp_path / "lines.jsonl"
    small = ["--rounds", "1", "--heads", "2", "--input-len", "12", "--num-threads", "1"]
    assert delta.main([*small, "--output-file", str(lines)]) == 0
    record = json.loads(lines.read_text())
    least_s = 2 * delta.OPERATIONS * 2 * delta.SIZE**2 / record["float32_flops"]
    for dtype in delta.DTYPES:
        assert list(record[dtype]) == ["1", "8", "12"]
        for each in record[dtype].values():
            assert each["of_limit"] == pytest.approx(each["tokens_per_s"] * least_s, abs=1e-3)
            assert each["tokens_per_s"] > 0
