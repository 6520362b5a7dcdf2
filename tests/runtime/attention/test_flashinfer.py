"""Prompts by FlashInfer equal the oracle, beside rows that decode by our kernels; no plan is written too early."""

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import flashinfer_double
import numpy as np
import pytest
import torch
from flashinfer_step import HEADS, LAYERS, ROWS, Step, backend
from happens_before import Race
from recording_device import CUDA, recording_device

from ramet.runtime.attention import flashinfer
from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.attention.flashinfer import slots_of
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.engine.devices.base import AttentionSpec
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.engine.devices.cuda import CudaDevice
from ramet.runtime.errors import ConfigError

WHEEL = "flashinfer-python==0.7.2.post1"


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "flashinfer", flashinfer_double)
    with recording_device(monkeypatch):
        yield


@pytest.mark.parametrize("cache", ["", "float8_e4m3fn"])
@pytest.mark.parametrize("rows", [[(5, 1), (30, 1), (0, 7), (20, 13), (3, 2)], [(0, 1), (7, 1)], [(0, 33), (40, 5)]])
def test_prompts_and_decoding_rows_equal_the_oracle(rows: list[tuple[int, int]], cache: str) -> None:
    step = Step(rows, cache=cache)
    attention = backend(step)
    attention.plan(step.inputs)
    for layer in range(len(LAYERS)):
        found, meant = step.attended(attention, layer)
        assert (found.float() - meant.float()).abs().max().item() < 5e-3


def test_a_step_without_prompts_after_one_with_them() -> None:
    first, later = Step([(0, 9)]), Step([(4, 1), (5, 1)])
    later.pool = first.pool
    attention = backend(first)
    for step in (first, later):
        attention.plan(step.inputs)
        found, meant = step.attended(attention, 0)
        assert (found.float() - meant.float()).abs().max().item() < 5e-3


def test_slots_of_rows_lie_one_behind_the_other() -> None:
    table = torch.arange(40, dtype=torch.int32, device=CUDA).view(4, 10)
    found = slots_of(table, np.array([2, 0], np.int32), np.array([3, 2], np.int32))
    assert found.tolist() == [20, 21, 22, 0, 1] and found.dtype == torch.int32


def plan_often(step: Step) -> None:
    attention = backend(step)
    for _ in range(4):
        attention.plan(step.inputs)
        step.attended(attention, 0)


def test_a_plan_is_written_again_once_it_was_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_often(Step([(0, 9)]))
    monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda _: None)
    with pytest.raises(Race, match=r"host writes in .* what stream 0 read in aten.copy_"):
        plan_often(Step([(0, 9)]))


def chosen(pool: KVPool, layers: list[LayerAttention], dtype: torch.dtype) -> None:
    CudaDevice().attention("flashinfer", AttentionSpec(pool, HEADS, layers, ROWS, dtype))


def test_what_it_does_not_take_is_named() -> None:
    step = Step([(0, 9)])
    with pytest.raises(ConfigError, match="queries are float32, the pool is float16 with head size 64"):
        chosen(step.pool, LAYERS, torch.float32)
    small = KVPool(max_total_tokens=8, page_size=1, layers=[KVShape.of(2, 80)], dtype=torch.float16, device=CUDA)
    with pytest.raises(ConfigError, match="head size 80: it takes bfloat16 or float16"):
        chosen(small, LAYERS, torch.float16)
    sinks = [replace(layer, sinks=True) for layer in LAYERS]
    with pytest.raises(ConfigError, match="and layers have sinks"):
        chosen(step.pool, sinks, torch.bfloat16)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(ConfigError, match=r"cannot be imported .*; pip install flashinfer-python, or use triton"):
        flashinfer.package()


def test_a_cpu_is_refused() -> None:
    sizes = dict(max_total_tokens=8, page_size=1, layers=[KVShape.of(2, 64)])
    pool = KVPool(**sizes, dtype=torch.bfloat16, device=torch.device("cpu"))
    with pytest.raises(ConfigError, match="needs --device cuda"):
        CpuDevice().attention("flashinfer", AttentionSpec(pool, HEADS, LAYERS, ROWS, torch.bfloat16))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_published_package_takes_what_it_is_given(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    subprocess.run([*pip, "--dest", str(tmp_path), WHEEL], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    source = zipfile.ZipFile(wheel).read("flashinfer/prefill.py").decode()
    classes = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)]
    (wrapper,) = [
        each for each in classes if each.name == flashinfer_double.BatchPrefillWithPagedKVCacheWrapper.__name__
    ]
    for name, (by_place, by_name) in flashinfer_double.parameters_of().items():
        method = [each for each in wrapper.body if isinstance(each, ast.FunctionDef) and each.name == name][-1]
        taken = [each.arg for each in method.args.args][1:]
        assert taken[: len(by_place)] == by_place
        assert {*by_name} <= {*taken, *(each.arg for each in method.args.kwonlyargs)}
