"""`ramet bench attention`: what it counts, and one small run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from compiled import compiled_kernels

from ramet.bench.kernels import attention
from ramet.bench.kernels.attention import MODEL, table_of
from ramet.kernels.cpu import limits
from ramet.kernels.cpu.measured import MachineLimits
from ramet.runtime.engine.devices.cpu_kernels import machine, use


@pytest.mark.usefixtures("two_threads")
def test_a_run_has_a_figure_for_each_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    ops = compiled_kernels()
    request.addfinalizer(lambda: use(ops.library, machine(ops.library, ops.threads)))  # what the other tests have
    monkeypatch.setattr(limits, "ROUNDS", 1)
    monkeypatch.setattr(limits, "LOOP_S", 1e-4)
    small = [replace(MODEL, rows=2, context=20, cache=cache) for cache in ("float32", "bfloat16", "int8")]
    monkeypatch.setattr(attention, "DECODES", small)
    monkeypatch.setattr(attention, "EXTENDS", [replace(MODEL, rows=2, context=20, new=5, shared=10)])
    monkeypatch.setattr(attention, "GROWING", {name: small[:2] for name in attention.GROWTHS})
    lines = tmp_path / "lines.jsonl"
    for dots in ([], ["--dots", "off"], ["--dots", "on"]):
        assert attention.main(["--rounds", "1", "--least-mb", "1", "--output-file", str(lines), *dots]) == 0
    record, without, with_dots = map(json.loads, lines.read_text().splitlines())
    assert record["dots"] == MachineLimits(**record["limits"]).dots_pay
    assert not without["dots"] and with_dots["dots"]
    assert list(record["decode"]) == [case.name for case in small]
    bytes_of = {case.cache: record["decode"][case.name] for case in small}
    for cache, size in (("float32", 256), ("bfloat16", 128), ("int8", 68)):
        figures = bytes_of[cache]
        assert figures["gb_per_s"] == pytest.approx(2 * 20 * 2 * 12 * size / figures["us"] / 1e3, rel=0.05)
    assert len(record["extend"]) == 1 and [len(ratios) for ratios in record["growth"].values()] == [1, 1]


def test_pairs_are_of_queries_and_the_keys_before_them() -> None:
    assert replace(MODEL, rows=1, context=4, new=4).pairs == 1 + 2 + 3 + 4
    assert replace(MODEL, rows=3, context=10, new=1).pairs == 30
    assert replace(MODEL, rows=2, context=10, new=2).pairs == 2 * (9 + 10)


def test_rows_share_the_slots_that_they_are_said_to() -> None:
    table = table_of(replace(MODEL, rows=3, context=12, shared=5)).numpy()
    assert (table[:, :5] == table[0, :5]).all()
    assert len(set(table[:, 5:].ravel()) | set(table[0, :5])) == 5 + 3 * 7 and table.min() == 1
