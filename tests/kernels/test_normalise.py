"""What log-probabilities are made of: the compiled kernel equals plain torch, and torch a sum in double precision."""

from typing import Any

import numpy as np
import pytest
import torch
from compiled import KERNELS, compiled_kernels

pytestmark = pytest.mark.usefixtures("two_threads")


def logits_of(rows: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    made = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 5
    return made.round(decimals=1)  # so that there are equals


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("vocabulary", [1, 2, 15, 16, 17, 127, 1025, 32_000])
@pytest.mark.parametrize("num_top", [0, 1, 5, 40, 256])
def test_equals_a_naive_one(kernel: Any, vocabulary: int, num_top: int):
    logits = logits_of(7, vocabulary, seed=num_top)
    logits[2, vocabulary // 2 :] = -torch.inf
    logits[2, 0] = 1.0
    rows, temperature = torch.tensor([5, 2, 0, 2]), torch.tensor([1.0, 0.3, 2.5, 1.0])
    num_top = min(num_top, vocabulary)
    peaks, log_sums, best = kernel.normalise(logits, rows, temperature, num_top)
    for i, (row, t) in enumerate(zip(rows.tolist(), temperature.tolist(), strict=True)):
        values = logits[row].double().numpy()
        assert float(peaks[i]) == values.max()
        assert float(log_sums[i]) == pytest.approx(np.logaddexp.reduce((values - values.max()) / t), rel=1e-6, abs=1e-6)
        assert best[i].tolist() == np.argsort(-values, kind="stable")[:num_top].tolist()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("order", [1, -1], ids=["rising", "falling"])
def test_order_does_not_matter(kernel: Any, order: int):
    logits = torch.arange(5000, dtype=torch.float32)[None] * order
    *_, best = kernel.normalise(logits, torch.tensor([0]), torch.ones(1), 100)
    assert best[0].tolist() == (list(range(4999, 4899, -1)) if order == 1 else list(range(100)))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_harms_nobody(bad: float):
    logits = logits_of(3, 500)
    kernel = compiled_kernels()
    rows, ones = torch.arange(3), torch.ones(3)
    clean = kernel.normalise(logits, rows, ones, 9)
    logits[1, :] = bad
    *parts, best = kernel.normalise(logits, rows, ones, 9)
    for part, want in zip((*parts, best), clean, strict=True):
        assert torch.equal(part[[0, 2]], want[[0, 2]])
    assert 0 <= int(best[1].min()) <= int(best[1].max()) < 500
