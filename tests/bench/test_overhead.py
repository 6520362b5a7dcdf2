"""The bench of what the tree costs: it times what it says, on requests that run to their end."""

import json
from pathlib import Path

import pytest

from ramet.bench.programs import overhead, traces
from ramet.bench.programs.overhead import OverheadWatch, play
from ramet.bench.programs.words import write_model
from ramet.runtime.engine.scripted import ScriptedRunner
from ramet.runtime.text.tokenizer import Tokenizer


class Doll:
    def outer(self) -> str:
        return self.inner() + "!"

    def inner(self) -> str:
        return "in"


def test_a_watch_counts_nested_calls_once_and_returns_what_they_return():
    doll = Doll()
    watch = OverheadWatch(doll, ("outer", "inner"))
    assert doll.outer() == "in!" and doll.inner() == "in"
    once = watch.seconds
    assert once > 0
    doll.outer()
    assert watch.seconds > once


@pytest.mark.parametrize("cached", [True, False])
def test_a_round_runs_every_request_to_its_end(tmp_path: Path, cached: bool):
    write_model(tmp_path)
    runner = ScriptedRunner(32000, 4096, 8192, 8)
    spent = play(runner, Tokenizer.from_folder(tmp_path), traces.unshared(3), cached=cached)
    assert spent.steps == 256 and spent.cache > 0


def test_the_bench_writes_a_line(tmp_path: Path):
    lines = tmp_path / "overhead.jsonl"
    assert overhead.main(["--requests", "4", "--rounds", "1", "--output-file", str(lines)]) == 0
    record = json.loads(lines.read_text())
    assert record["bench"] == "overhead" and set(record["loads"]) == {"subtrees", "unshared"}
    for name, waits in (("subtrees", 1), ("unshared", 0)):  # for the first one, which computes what all share
        load = record["loads"][name]
        assert load["requests"] == 4 and load["median"]["tree"]["steps"] == load["median"]["off"]["steps"] + waits
        assert load["share_of_forward"] is None  # there is no model
