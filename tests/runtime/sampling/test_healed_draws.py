"""What a step says of rows whose prompt is healed, against a softmax by hand; the fused epilogue says the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ramet.kernels import reference
from ramet.kernels.draw_params import neutral
from ramet.runtime.sampling.columns import (
    HealedRow,
    LogitEntries,
    LogprobRow,
    Penalties,
    PenaltyReset,
    SamplingColumns,
)
from ramet.runtime.sampling.epilogue import Drawn, Epilogue, RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue

CPU = torch.device("cpu")
ROWS, VOCABULARY, WORDS = 6, 200, 7
MASKED, HEALED = np.array([1, 3, 4, 5], np.int32), (1, 4, 5)  # row 3 is masked by a grammar alone
INNER = {1: [7, 9, 150], 4: [], 5: [0, 1]}
kinds = pytest.mark.parametrize("kind", [Epilogue, FusedEpilogue])


def bits_of(ids: list[int]) -> np.ndarray:
    flags = np.zeros(32 * WORDS, np.bool_)
    flags[ids] = True
    return np.packbits(flags, bitorder="little").view(np.int32)


COVERING = {1: [3, 30, 90, 199], 3: [5, 6], 4: [100, 11], 5: [44, 45, 46]}


def run(kind: type[Epilogue], logits: torch.Tensor, raw: bool = False, **given: Any) -> tuple[Drawn, torch.Tensor]:
    """What is drawn, and the logits that were drawn from."""
    every = np.arange(ROWS)
    fields: dict[str, Any] = dict(
        draw_params=replace(
            neutral(ROWS), temperature=np.array([0, 0.7, 1, 1, 0, 1.3], np.float32), seeds=every.astype(np.uint64)
        ),
        positions=np.full(ROWS, 2), masked=MASKED,
        healed=tuple(HealedRow(row, np.array(INNER[row], np.int32)) for row in HEALED),
        penalties=Penalties(*(np.array([1], np.int32),) * 2, *(np.array([v], np.float32) for v in (0.5, 0.2, 1.2))),
        biased=LogitEntries(np.array([4], np.int32), np.array([60], np.int32)), biases=np.array([2.0], np.float32),
        banned=LogitEntries(np.array([0, 5, 5], np.int32), np.array([8, 44, 70], np.int32)),
    )  # fmt: skip
    epilogue = kind(ROWS + 1, RowBuffer(ROWS + 1, CPU), VOCABULARY, CPU, reference, {}, raw_logprobs=raw)
    epilogue.reset_penalties(PenaltyReset(1, np.array([30, 7, 7], np.int32), np.array([], np.int32)))
    allowed = np.stack([bits_of(COVERING[row]) for row in MASKED.tolist()])
    columns = SamplingColumns(**{**fields, **given})
    return epilogue.run(logits, columns, torch.arange(1, ROWS + 1), allowed), logits


def expected(logits: torch.Tensor, row: int) -> torch.Tensor:
    """Log-probabilities [V] before the mask."""
    own = logits[row].double().clone()
    if row == 1:
        for token, count in ((30, 1), (7, 2)):
            own[token] -= 0.5 * count + 0.2
            own[token] = own[token] / 1.2 if own[token] > 0 else own[token] * 1.2
    if row == 4:
        own[60] += 2.0
    if row == 5:
        own[[44, 70]] = -torch.inf
    return torch.log_softmax(own / {1: 0.7, 4: 1.0, 5: 1.3}[row], -1)


@kinds
def test_probabilities_are_among_all_tokens_that_are_not_banned(kind: type[Epilogue]) -> None:
    for seed in range(5):
        logits = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3
        drawn, _ = run(kind, logits.clone())
        for row, place in zip(HEALED, drawn.healed, strict=True):
            own, token = expected(logits, row), int(drawn.tokens[row])
            assert token in COVERING[row] and (row != 5 or token != 44)
            assert place.drawn == pytest.approx(float(own[token]), abs=1e-4)
            assert place.covered == pytest.approx(float(torch.logsumexp(own[COVERING[row]], 0)), abs=1e-4)
            assert place.inner.tolist() == pytest.approx(own[INNER[row]].tolist(), abs=1e-4)
        assert int(drawn.tokens[4]) == max(COVERING[4], key=lambda token: float(logits[4, token]))
        assert int(drawn.tokens[3]) in COVERING[3] and bool(drawn.finite.all())


@kinds
@pytest.mark.parametrize("raw", [False, True])
def test_log_probabilities_for_clients_are_those_without_the_mask(kind: type[Epilogue], raw: bool) -> None:
    logits = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(9)) * 3
    asked = tuple(LogprobRow(row, 2, np.array([13, 150], np.int32)) for row in (1, 5))
    drawn, _ = run(kind, logits.clone(), raw, logprobs=asked)
    for row, told in zip((1, 5), drawn.logprobs, strict=True):
        own = torch.log_softmax(logits[row].double(), -1) if raw else expected(logits, row)
        assert told.values[0] == pytest.approx(float(own[int(drawn.tokens[row])]), abs=1e-4)
        assert told.top_ids[0].tolist() == torch.topk(own, 2).indices.tolist()
        assert told.chosen[0].tolist() == pytest.approx(own[[13, 150]].tolist(), abs=1e-4)


@kinds
def test_where_nothing_that_covers_can_be_drawn_a_row_is_not_broken(kind: type[Epilogue]) -> None:
    logits = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(2))
    logits[1, COVERING[1]] = -torch.inf
    drawn, _ = run(kind, logits.clone())
    assert drawn.healed[0].covered == -np.inf and bool(drawn.finite.all())
    assert drawn.healed[0].inner.tolist() == pytest.approx(expected(logits, 1)[INNER[1]].tolist(), abs=1e-4)
    assert np.isfinite(drawn.healed[1].covered)
