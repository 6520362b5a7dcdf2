"""`ramet bench implementations` measures three sides of each model, and keeps a line of them."""

import json
from pathlib import Path

import pytest

from ramet.bench import implementations


@pytest.mark.slow
def test_every_side_of_a_model_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "lines.jsonl"
    sizes = ["--layers", "1", "--rounds", "1", "--input-len", "4", "--output-len", "2", "--threads", "1"]
    assert implementations.main(["--model", "qwen3_moe", *sizes, "--output-file", str(kept)]) == 0
    (line,) = map(json.loads, kept.read_text().splitlines())
    measured = line["models"]["qwen3_moe"]
    assert list(measured) == ["batch 1", "batch 8"]
    for speeds in measured.values():
        assert list(speeds) == ["native", "transformers' modules", "generate"] and min(speeds.values()) > 0
    assert "qwen3_moe  batch 8: native" in capsys.readouterr().out
