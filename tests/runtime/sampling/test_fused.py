"""The fused epilogue of a GPU, in the interpreter, draws and tells what the plain one does, step after step."""

from typing import Any

import numpy as np
import pytest
import torch
from samples import slow

from ramet.kernels import reference
from ramet.kernels.draw_params import DrawParams
from ramet.runtime.sampling.columns import (
    LogitEntries,
    LogprobRow,
    Penalties,
    PenaltyReset,
    ProcessorRow,
    ProcessorRows,
    SamplingColumns,
)
from ramet.runtime.sampling.epilogue import Epilogue, RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue, rows_of
from ramet.runtime.sampling.processors import make_all

CPU = torch.device("cpu")
ROWS, VOCABULARY = 12, 500
TABLE_ROWS = torch.arange(ROWS, 0, -1)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def make_columns(step: int, **given: Any) -> SamplingColumns:
    every = np.arange(ROWS)
    rows = every[every % 3 == 1].astype(np.int32)
    fields: dict[str, Any] = dict(
        draw_params=DrawParams(
            temperature=np.where(every % 4 == 0, 0.0, 0.5 + every / 8).astype(np.float32),
            top_k=np.where(every % 5 == 1, 20, 0),
            top_p=np.where(every % 5 == 3, 0.8, 1.0).astype(np.float32),
            min_p=np.where(every % 5 == 4, 0.05, 0.0).astype(np.float32),
            seeds=every.astype(np.uint64) << np.uint64(60),
        ),
        positions=np.full(ROWS, step),
        penalties=Penalties(rows, rows + 1, *(np.full(len(rows), v, np.float32) for v in (0.7, -0.4, 1.3))),
        biased=LogitEntries(ints(7, 2, 7), ints(3, 499, 0)),
        biases=np.array([4.0, -3.0, 2.0], np.float32),
        banned=LogitEntries(ints(11, 0, 0, 5), ints(1, 4, 2, 450)),
    )
    return SamplingColumns(**fields | given)


def make(kind: type[Epilogue], raw: bool = False) -> Epilogue:
    buffer = RowBuffer(ROWS + 1, CPU)
    return kind(ROWS + 2, buffer, VOCABULARY, CPU, reference, make_all(), raw_logprobs=raw)


def run_both(
    processors: tuple[ProcessorRows, ...],
    logprobs: tuple[LogprobRow, ...],
    raw: bool,
    steps: int = 1,
    masked: np.ndarray | None = None,
    **given: Any,
) -> None:
    plain, fused = (make(kind, raw) for kind in (Epilogue, FusedEpilogue))
    random = torch.Generator().manual_seed(5)
    for each in (plain, fused):
        for slot in range(1, ROWS + 1):
            each.reset_penalties(PenaltyReset(slot, ints(1, 1, 7), ints(8)))
    for step in range(steps):
        columns = make_columns(step, processors=processors, logprobs=logprobs, masked=masked, **given)
        bits = None
        if masked is not None:
            words = -(-VOCABULARY // 32)
            bits = torch.randint(-(2**31), 2**31, (len(masked), words), generator=random).int().numpy()
        logits = torch.randn(ROWS, VOCABULARY, generator=random) * 3
        one, other = (each.run(logits.clone(), columns, TABLE_ROWS, bits) for each in (plain, fused))
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.outcome(one.finite) == other.outcome(other.finite) == ((), one.failures)
        for name in ("lengths", "next_ids"):
            assert torch.equal(getattr(plain._row_buffer, name), getattr(fused._row_buffer, name))
        for a, b in zip(one.logprobs, other.logprobs, strict=True):
            assert a.top_ids.tolist() == b.top_ids.tolist()
            for name in ("values", "top_values", "chosen"):
                np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("steps", [2, slow(20)])
def test_steps_draw_the_same(steps: int):
    run_both((), (), raw=False, steps=steps)


def test_steps_that_ask_for_nothing_else_draw_the_same():
    run_both((), (), raw=False, steps=2, penalties=None, biased=None, biases=None, banned=None)


@pytest.mark.parametrize("raw", [False, True])
def test_log_probabilities_are_the_same(raw: bool):
    run_both((), (LogprobRow(0, 3, ints(4, 5)), LogprobRow(7, 2, ints()), LogprobRow(11, 0, ints(1))), raw)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("logprobs", [(), (LogprobRow(0, 3, ints(4, 5)), LogprobRow(5, 2, ints()))])
def test_what_grammars_mask_is_the_same(logprobs: tuple[LogprobRow, ...], raw: bool):
    run_both((), logprobs, raw, steps=2, masked=ints(11, 0, 4))


def test_a_processor_runs_between_penalties_and_mask():
    row = ProcessorRow(0, 1, {"token_ids": [1, 2, 3, 4, 450]}, ints(1), ints())
    run_both((ProcessorRows("allow_tokens", (row,)),), (), raw=False)


def test_nothing_is_asked_of_rows_that_use_nothing():
    rows = rows_of(SamplingColumns.greedy(3), torch.tensor([2, 1, 3]))
    assert not (rows.penalises or rows.ranks or rows.floors)
    assert rows.table_rows.tolist() == [2, 1, 3]
    assert rows.bias_starts.tolist() == rows.ban_starts.tolist() == [0, 0, 0, 0]


def test_a_row_in_which_everything_is_forbidden_is_told_apart_from_a_broken_one():
    logits = torch.zeros(ROWS, VOCABULARY)
    logits[1] = torch.nan
    banned = LogitEntries(np.zeros(VOCABULARY, np.int32), np.arange(VOCABULARY, dtype=np.int32))
    columns = make_columns(0, banned=banned)
    drawn = make(FusedEpilogue).run(logits, columns, TABLE_ROWS)
    broken, failures = drawn.outcome(drawn.finite)
    assert broken == (0, 1) and failures.keys() == {0} and failures[0].status == 400


@pytest.mark.parametrize("kind", [Epilogue, FusedEpilogue])
def test_a_row_whose_grammar_leaves_nothing_that_others_allow_is_told_apart(kind: type[Epilogue]):
    banned = LogitEntries(ints(2, 2), ints(7, 450))
    bits = np.zeros((1, -(-VOCABULARY // 32)), np.int32)
    bits[0, 0], bits[0, 450 // 32] = 1 << 7, 1 << (450 % 32)
    columns = make_columns(0, banned=banned, masked=ints(2))
    drawn = make(kind).run(torch.zeros(ROWS, VOCABULARY), columns, TABLE_ROWS, bits)
    broken, failures = drawn.outcome(drawn.finite)
    assert broken == (2,) and failures.keys() == {2} and failures[2].status == 400
