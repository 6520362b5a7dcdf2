"""Log-probabilities are computed a bounded number of places at a time, whose results do not depend on the cut."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.runtime.sampling import logprobs
from ramet.runtime.sampling.columns import LogprobRow, PlaceLogprobs, SamplingColumns
from ramet.runtime.sampling.logprobs import MAX_PLACES, logprobs_of_drawn, logprobs_of_prompt

VOCABULARY = 50


class Counting:
    """The reference's kernel, with the number of rows of each call."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def normalise(self, logits: Tensor, rows: Tensor, temperature: Tensor, num_top: int) -> Any:
        self.rows.append(len(rows))
        return reference.normalise(logits, rows, temperature, num_top)


def logits_of(num: int, seed: int = 0) -> Tensor:
    return torch.randn(num, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def of_prompt(num: int, num_top: int, ids: np.ndarray) -> tuple[Counting, PlaceLogprobs]:
    kernel, logits = Counting(), logits_of(num + 3)
    targets = np.random.default_rng(num).integers(0, VOCABULARY, num).astype(np.int32)
    return kernel, logprobs_of_prompt(kernel, lambda at: logits[at], 3, targets, num_top, ids)


def of_drawn(num: int, num_top: int, ids: np.ndarray) -> tuple[Counting, tuple[PlaceLogprobs, ...]]:
    """Every second row asks, each for something else."""
    kernel, logits = Counting(), logits_of(2 * num)
    rows = tuple(LogprobRow(2 * i, (num_top + i) % 7, ids[: i % 4]) for i in range(num))
    columns = SamplingColumns.greedy(2 * num)
    columns.draw_params.temperature[::3] = 0.5
    tokens = logits.argmax(-1)
    return kernel, logprobs_of_drawn(kernel, logits, tokens, replace(columns, logprobs=rows), raw=False)


@pytest.mark.parametrize("num", [1, MAX_PLACES - 1, MAX_PLACES, MAX_PLACES + 1, 3 * MAX_PLACES + 7])
@pytest.mark.parametrize("compute", [of_prompt, of_drawn])
def test_no_call_has_more_rows_than_the_bound(compute: Callable[..., tuple[Counting, Any]], num: int):
    kernel, _ = compute(num, 5, np.arange(3, dtype=np.int32))
    assert sum(kernel.rows) == num and max(kernel.rows) <= MAX_PLACES <= 128


@pytest.mark.parametrize("seed", range(10))
def test_cut_and_uncut_are_equal(seed: int, monkeypatch: pytest.MonkeyPatch):
    draw = np.random.default_rng(seed)
    num, num_top = int(draw.integers(1, 90)), int(draw.integers(0, VOCABULARY + 1))
    ids = draw.integers(0, VOCABULARY, int(draw.integers(0, 6))).astype(np.int32)
    _, whole = of_prompt(num, num_top, ids)
    _, drawn = of_drawn(num, num_top, ids)
    monkeypatch.setattr(logprobs, "MAX_PLACES", int(draw.integers(1, 20)))
    kernel, cut = of_prompt(num, num_top, ids)
    assert len(kernel.rows) > 1 or num <= logprobs.MAX_PLACES
    for one, other in zip((whole, *drawn), (cut, *of_drawn(num, num_top, ids)[1]), strict=True):
        for name in ("values", "top_ids", "top_values", "chosen"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
