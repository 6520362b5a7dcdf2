"""`ramet bench abuse`: its bodies, the figures that miss a bound, and one complete run."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from ramet.bench.abuse import bench
from ramet.bench.abuse.shapes import BOMB, PACKED, SHAPES, body_of, plain
from ramet.bench.abuse.work import WORK

SIZE = 1 << 16
BROKEN = {"brackets", "a long number", "bad UTF-8", "no JSON", *PACKED}  # the others are JSON


@pytest.mark.parametrize("shape", SHAPES)
def test_a_body_has_the_size_that_was_asked_for(shape: str) -> None:
    size = SIZE // BOMB if shape in PACKED else SIZE
    body = body_of(shape, size)
    assert 0.8 * size <= len(body.data) <= size + 64
    if shape not in BROKEN:
        assert isinstance(orjson.loads(body.data), dict)


def test_the_control_is_one_text_of_the_same_size() -> None:
    assert len(plain(SIZE).data) == SIZE
    assert orjson.loads(plain(SIZE).data).keys() == {"text"}


@pytest.mark.parametrize("name", WORK)
def test_work_differs_each_time_and_its_control_has_as_many_bytes(name: str) -> None:
    bodies = [WORK[name].body(i).data for i in range(3)]
    assert len(set(bodies)) == 3
    assert abs(len(WORK[name].control(1).data) - len(bodies[1])) < 32


BESIDE: dict[str, Any] = {
    "shape": "s", "size": bench.LARGE, "gap_ratio": 1.3, "health_s": 9.0, "health_ratio": 3.0
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "line", "missed"),
    [
        ("cost", {"shape": "s", "size": 1, "ratio": 4.0}, False),
        ("cost", {"shape": "s", "size": 1, "ratio": 4.1}, True),
        ("beside", BESIDE, False),
        ("beside", {**BESIDE, "gap_ratio": 1.31}, True),
        ("beside", {**BESIDE, "health_ratio": 3.1}, True),
        ("beside", {**BESIDE, "size": bench.SMALL, "health_s": 0.9, "health_ratio": 9.0}, False),
        ("beside", {**BESIDE, "size": bench.SMALL, "health_s": 1.1}, True),
        ("flood", {"shape": "s", "idle_mib": 100.0, "left_mib": [240.0, 250.0, 244.0]}, False),
        ("flood", {"shape": "s", "idle_mib": 100.0, "left_mib": [200.0, 200.0, 205.0]}, True),
        ("flood", {"shape": "s", "idle_mib": 100.0, "left_mib": [260.0, 260.0, 260.0]}, True),
    ],
)
def test_a_figure_beyond_its_bound_is_missed(part: str, line: dict[str, Any], missed: bool) -> None:
    assert bool(bench.misses({part: [line]})) is missed


def test_a_run_makes_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"SETTLE_S": 0.1, "SMALL": SIZE, "LARGE": 2 * SIZE, "COST_MIB": 1}.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(bench, "FLOODS", ("numbers",))
    lines = tmp_path / "lines.jsonl"
    argv = ["--shape", "numbers", "--rounds", "1", "--streams", "2", "--window-s", "1", "--rate-mib-s", "1"]
    served = ["--", "--runner", "scripted", "--scripted-step-ms", "10"]
    bench.main(
        [*argv, "--output-file", str(lines), *served]
    )  # the exit code says whether the bounds hold, which they may not on a busy machine
    (record,) = map(json.loads, lines.read_text().splitlines())
    printed = capsys.readouterr().out
    assert record["bench"] == "abuse", printed
    assert {each["size"] for each in record["cost"]} == {SIZE, 2 * SIZE}
    assert all(each["ratio"] > 0 for each in record["cost"])
    for each in record["beside"]:
        assert each["gap_ms"] > 0 and each["health_s"] > 0 and sum(each["statuses"].values()) >= 2
    assert len(record["flood"][0]["left_mib"]) == 3
