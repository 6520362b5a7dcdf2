"""`ramet bench films`: what a film is, and one run from end to end."""

import io
import json
from pathlib import Path

import av
import pytest

from ramet.bench.programs import films
from ramet.bench.programs.seeing import film


def test_a_film_has_its_length_and_its_frames() -> None:
    with av.open(io.BytesIO(film("a", 0.4, 64, 48, fps=10))) as container:
        frames = list(container.decode(video=0))
    assert [(frame.width, frame.height) for frame in frames] == [(64, 48)] * 4


def test_a_run_makes_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    monkeypatch.setattr(films, "LARGE", {**films.LARGE, **small, "num_key_value_heads": 2})
    lines = tmp_path / "lines.jsonl"
    argv = ["--rounds", "2", "--streams", "2", "--film-s", "0.2", "--window-s", "0.3"]
    assert films.main([*argv, "--output-file", str(lines)]) == 0, capsys.readouterr()
    (record,) = map(json.loads, lines.read_text().splitlines())
    assert record["bench"] == "films" and len(record["measured"]) == 2
    assert all(each["alone_ms"] > 0 and each["film_s"] > 0 for each in record["measured"])
    assert "asked: at most 1.2" in capsys.readouterr().out
