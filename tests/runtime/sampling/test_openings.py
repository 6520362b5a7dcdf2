"""A first token that may open a thought: as often as without the mask, and otherwise as if there was only the mask."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from compiled import KERNELS

from ramet.kernels import reference
from ramet.kernels.draw_params import neutral
from ramet.runtime.arrays import Ints
from ramet.runtime.sampling.columns import LogitEntries, LogprobRow, SamplingColumns
from ramet.runtime.sampling.epilogue import Drawn, Epilogue, RowBuffer, SamplingKernel
from ramet.runtime.sampling.fused import FusedEpilogue

pytestmark = pytest.mark.usefixtures("two_threads")

CPU = torch.device("cpu")
VOCABULARY, WORDS, OPENS = 40, 2, 39
LEGAL = [3, 7, 8, 20]
ROWS = 4000


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int32)


def columns_of(num: int, temperature: float, opens: Ints, opening: int = OPENS) -> SamplingColumns:
    """Rows that a grammar masks; those at `opens` may open a thought."""
    every = np.arange(num)
    seeds = every.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    params = replace(neutral(num), temperature=np.full(num, temperature, np.float32), seeds=seeds)
    return replace(
        SamplingColumns.greedy(num),
        draw_params=params,
        masked=every.astype(np.int32),
        openings=LogitEntries(opens, np.full(len(opens), opening, np.int32)) if len(opens) else None,
    )


def masks(num: int) -> Ints:
    bits = np.zeros(32 * WORDS, np.bool_)
    bits[LEGAL] = True
    return np.tile(np.packbits(bits, bitorder="little").view(np.int32), (num, 1))


def draw(
    kernel: SamplingKernel, logits: torch.Tensor, columns: SamplingColumns, kind: type[Epilogue] = Epilogue
) -> Drawn:
    epilogue = kind(1, RowBuffer(len(logits) + 1, CPU), VOCABULARY, CPU, kernel)
    return epilogue.run(logits.clone(), columns, torch.arange(1, len(logits) + 1), masks(len(logits)))


def logits_of(share: float) -> torch.Tensor:
    """[V]: the opening token has `share` of the mass, legal ones have 8, 6, 4 and 2 percent, others what is left."""
    probabilities = torch.full((VOCABULARY,), (0.8 - share) / (VOCABULARY - 1 - len(LEGAL)))
    probabilities[LEGAL] = torch.tensor([0.08, 0.06, 0.04, 0.02])
    probabilities[OPENS] = share
    return probabilities.log()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_a_thought_is_opened_as_often_as_without_a_mask_and_the_rest_is_drawn_as_under_it(
    kernel: SamplingKernel, share: float
) -> None:
    columns = columns_of(ROWS, 1.0, np.arange(ROWS, dtype=np.int32))
    tokens = draw(kernel, logits_of(share).expand(ROWS, -1), columns).tokens.numpy()
    found = (tokens == OPENS).mean()
    assert abs(found - share) < 4 * (share * (1 - share) / ROWS) ** 0.5
    rest = tokens[tokens != OPENS]
    assert set(rest) <= set(LEGAL)
    for token, expected in zip(LEGAL, (0.4, 0.3, 0.2, 0.1), strict=True):
        assert abs((rest == token).mean() - expected) < 4 * (expected * (1 - expected) / len(rest)) ** 0.5, token


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_may_open_a_thought_change_no_other(kernel: SamplingKernel, temperature: float) -> None:
    logits = torch.randn(64, VOCABULARY, generator=torch.Generator().manual_seed(1))
    without = draw(kernel, logits, columns_of(64, temperature, ints())).tokens
    some = draw(kernel, logits, columns_of(64, temperature, ints(5, 9, 60))).tokens
    others = [i for i in range(64) if i not in (5, 9, 60)]
    assert torch.equal(without[others], some[others])
    closed = logits.clone()
    closed[:, OPENS] = -torch.inf
    for row in (5, 9, 60):  # the number of the second draw is the one that it would have had
        if some[row] != OPENS:
            assert some[row] == draw(kernel, closed, columns_of(64, temperature, ints())).tokens[row]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_best_token_opens_a_thought_at_temperature_0(kernel: SamplingKernel) -> None:
    logits = torch.zeros(3, VOCABULARY)
    logits[0, OPENS] = logits[1, 30] = logits[2, OPENS] = 5
    logits[:, 8] = 1
    assert draw(kernel, logits, columns_of(3, 0.0, ints(0, 1))).tokens.tolist() == [OPENS, 8, 8]


@pytest.mark.parametrize("kind", [Epilogue, FusedEpilogue])
def test_log_probabilities_are_those_of_the_draw_that_counted(kind: type[Epilogue]) -> None:
    logits = torch.zeros(3, VOCABULARY)
    logits[0, OPENS] = 3
    logits[1:, 30] = 3
    columns = columns_of(3, 0.0, ints(0, 1))
    columns = replace(columns, logprobs=tuple(LogprobRow(row, 2, ints(3, 30)) for row in range(3)))
    drawn = draw(reference, logits, columns, kind)
    assert drawn.tokens.tolist() == [OPENS, 3, 3]
    free = logits[0].log_softmax(-1)
    opened, *others = drawn.logprobs
    np.testing.assert_allclose(opened.values, [free[OPENS]], rtol=1e-5)
    np.testing.assert_allclose(opened.chosen, [[free[3], free[30]]], rtol=1e-5)
    for other in others:
        np.testing.assert_allclose(other.values, [np.log(1 / len(LEGAL))], rtol=1e-5)
        assert other.top_ids.tolist() == [[3, 7]] and other.chosen[0, 1] < -1e30


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_fused_epilogue_opens_the_same_thoughts(temperature: float) -> None:
    logits = torch.randn(48, VOCABULARY, generator=torch.Generator().manual_seed(2))
    logits[:, OPENS] += 2
    columns = columns_of(48, temperature, np.arange(0, 48, 2, dtype=np.int32))
    plain, fused = (draw(reference, logits, columns, kind) for kind in (Epilogue, FusedEpilogue))
    assert plain.tokens.tolist() == fused.tokens.tolist()
    assert 0 < int((plain.tokens == OPENS).sum()) < 24
    assert plain.outcome(plain.finite) == fused.outcome(fused.finite) == ((), {})


@pytest.mark.parametrize("opening", [VOCABULARY + 3, 32 * WORDS, 10**6])
def test_a_token_without_a_logit_opens_nothing(opening: int) -> None:
    columns = columns_of(2, 0.0, ints(0, 1), opening)
    assert draw(reference, torch.zeros(2, VOCABULARY), columns).tokens.tolist() == [3, 3]


@pytest.mark.parametrize("kind", [Epilogue, FusedEpilogue])
def test_a_row_that_is_not_finite_is_named_and_harms_nobody(kind: type[Epilogue]) -> None:
    logits = torch.zeros(2, VOCABULARY)
    logits[0] = torch.nan
    logits[1, OPENS] = 1
    drawn = draw(reference, logits, columns_of(2, 0.0, ints(0, 1)), kind)
    assert drawn.outcome(drawn.finite) == ((0,), {}) and int(drawn.tokens[1]) == OPENS
