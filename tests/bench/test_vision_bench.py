"""`ramet bench vision`: what is asked of which picture, and a run of each workload from end to end."""

import json
from pathlib import Path

import pytest

from ramet.bench.programs import vision
from ramet.bench.programs.seeing import TEXT, TOWER
from ramet.bench.programs.vision import WORKLOADS


def test_questions_to_one_picture_stand_together_and_every_round_has_new_pictures() -> None:
    workload = WORKLOADS["llava-bench"]
    asked = workload.asked("0")
    seen = [each.seen for each in asked]
    assert len(asked) == 60 and len(set(seen)) == 24
    assert seen == sorted(seen, key=seen.index), "no picture comes back"
    assert not set(seen) & {each.seen for each in workload.asked("1")}


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_a_run_makes_one_line_and_the_texts_are_those_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    monkeypatch.setattr(vision, "TEXT", {**TEXT, **small, "num_key_value_heads": 4})
    monkeypatch.setattr(vision, "TOWER", {**TOWER, **small})
    monkeypatch.setattr(vision, "FILM_S", 0.5)
    monkeypatch.setattr(vision, "WORKLOADS", {name: WORKLOADS[name]._replace(side=56, num=2, num_questions=4)})
    lines = tmp_path / "lines.jsonl"
    argv = ["--rounds", "1", "--num-new", "4", "--workload", name, "--output-file", str(lines)]
    assert vision.main(argv) == 0, capsys.readouterr()
    (record,) = map(json.loads, lines.read_text().splitlines())
    found = record["workloads"][name]
    assert found["questions"] == 4 and found["same_texts"] == 1
    assert all(value > 0 for value in found["per_s"].values()) and list(found["per_s"]) == list(vision.MAKERS)
    assert "times what transformers does" in capsys.readouterr().out
