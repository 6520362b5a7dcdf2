"""Filters leave tokens out of the rows that ask for them, of the draw alone, and of nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.draw_params import neutral
from ramet.runtime.sampling import epilogue as epilogue_module
from ramet.runtime.sampling import filters
from ramet.runtime.sampling.columns import FilterRows, LogitEntries, LogprobRow, SamplingColumns
from ramet.runtime.sampling.epilogue import Drawn, Epilogue, RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue
from ramet.runtime.sampling.openings import alone

CPU = torch.device("cpu")
ROWS, VOCABULARY = 40, 50
kinds = pytest.mark.parametrize("kind", [Epilogue, FusedEpilogue])


def above(scores: Tensor, values: Tensor) -> Tensor:
    """Tokens that are at least this probable."""
    return scores >= values[:, None].log()


@pytest.fixture(autouse=True)
def test_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(filters.FILTERS, "above", above)


def columns_of(*asked: FilterRows) -> SamplingColumns:
    every = np.arange(ROWS)
    params = replace(neutral(ROWS), temperature=np.where(every % 4 == 0, 0, 2).astype(np.float32))
    params = replace(params, seeds=every.astype(np.uint64) << np.uint64(60))
    return SamplingColumns(params, np.full(ROWS, 3), filters=asked)


def rows_at(rows: np.ndarray, value: float) -> FilterRows:
    return FilterRows("above", rows.astype(np.int32), np.full(len(rows), value, np.float32))


def logits_of(seed: int = 0) -> Tensor:
    return torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def run(kind: type[Epilogue], logits: Tensor, columns: SamplingColumns) -> Drawn:
    epilogue = kind(1, RowBuffer(ROWS + 1, CPU), VOCABULARY, CPU, reference)
    return epilogue.run(logits, columns, torch.arange(1, ROWS + 1))


@kinds
def test_rows_that_ask_for_none_draw_what_they_would_without_others(kind: type[Epilogue]) -> None:
    asking = np.arange(1, ROWS, 4)
    plain = run(kind, logits_of(), columns_of()).tokens
    drawn = run(kind, logits_of(), columns_of(rows_at(asking, 0.2))).tokens
    others = np.setdiff1d(np.arange(ROWS), asking)
    assert drawn[others].tolist() == plain[others].tolist()
    assert (drawn[asking] != plain[asking]).any()


@kinds
def test_no_token_is_drawn_that_is_left_out(kind: type[Epilogue]) -> None:
    asking = np.arange(1, ROWS, 2)
    for seed in range(5):
        logits = logits_of(seed)
        allowed = torch.softmax(logits / 2, -1) >= 0.1
        allowed |= allowed.sum(-1, keepdim=True) == 0  # nothing stays: the row is broken
        drawn = run(kind, logits, columns_of(rows_at(asking, 0.1)))
        assert allowed[asking, drawn.tokens[asking]].all()


@kinds
def test_log_probabilities_are_those_before_filters(kind: type[Epilogue]) -> None:
    columns = columns_of(rows_at(np.array([1, 2]), 0.1))
    columns = replace(columns, logprobs=(LogprobRow(1, 0, np.arange(VOCABULARY, dtype=np.int32)),))
    columns = replace(columns, banned=LogitEntries(np.array([1], np.int32), np.array([7], np.int32)))
    before = logits_of()
    before[1, 7] = -torch.inf
    [place] = run(kind, logits_of(), columns).logprobs
    expected = torch.log_softmax(before[1] / 2, -1).clamp_min(float(np.finfo(np.float32).min))
    np.testing.assert_allclose(place.chosen[0], expected.numpy(), rtol=1e-5, atol=1e-5)


@kinds
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_broken_row_stays_broken_and_harms_nobody(kind: type[Epilogue], bad: float) -> None:
    columns, logits = columns_of(rows_at(np.array([1, 2, 3]), 0.01)), logits_of()
    clean = run(kind, logits.clone(), columns).tokens
    logits[2, 3 if np.isfinite(bad) or bad != float("-inf") else slice(None)] = bad
    drawn = run(kind, logits, columns)
    assert drawn.finite.tolist() == [row != 2 for row in range(ROWS)]
    assert [t for i, t in enumerate(drawn.tokens.tolist()) if i != 2] == [
        t for i, t in enumerate(clean.tolist()) if i != 2
    ]


@kinds
def test_a_step_in_which_no_row_asks_calls_no_filter(kind: type[Epilogue], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epilogue_module, "filtered_draw", None)
    monkeypatch.setitem(filters.FILTERS, "above", None)
    run(kind, logits_of(), columns_of())


def test_rows_that_draw_by_themselves_keep_their_filters() -> None:
    rows = np.array([2, 5, 9], np.int32)
    [own] = alone(columns_of(rows_at(np.array([1, 2, 9]), 0.3)), rows).filters
    assert own.rows.tolist() == [0, 2] and own.values.tolist() == pytest.approx([0.3, 0.3])
