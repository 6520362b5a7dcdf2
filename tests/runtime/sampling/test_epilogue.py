"""What is done to logits equals ten naive lines: penalties, bias and mask in their order, step after step."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from compiled import KERNELS, compiled_kernels

from ramet.kernels import reference
from ramet.runtime.sampling.columns import LogitEntries, Penalties, PenaltyReset, SamplingColumns
from ramet.runtime.sampling.epilogue import Drawn, Epilogue, RowBuffer, SamplingKernel

pytestmark = pytest.mark.usefixtures("two_threads")

CPU = torch.device("cpu")


def make_epilogue(num_slots: int, vocabulary: int, kernel: Any) -> Epilogue:
    return Epilogue(num_slots, RowBuffer(512, CPU), vocabulary, CPU, kernel)


def draw(epilogue: Epilogue, logits: torch.Tensor, columns: SamplingColumns) -> Drawn:
    """Row i of the logits is row i + 1 of the slot table."""
    return epilogue.run(logits, columns, torch.arange(1, len(logits) + 1))


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def naive(logits: np.ndarray, output: list[int], prompt: list[int], p: dict[str, Any]) -> np.ndarray:
    """One row, written as the contract words it."""
    row = logits.astype(np.float64)
    for token in set(output):
        row[token] -= p.get("frequency", 0) * output.count(token) + p.get("presence", 0)
    for token in {*output, *prompt}:
        factor = p.get("repetition", 1)
        row[token] = row[token] * factor if row[token] < 0 else row[token] / factor
    for token, bias in p.get("bias", {}).items():
        row[token] += bias
    row[p.get("banned", [])] = -np.inf
    return row


def columns_of(rows: list[dict[str, Any]], slots: list[int | None]) -> SamplingColumns:
    penalised = [i for i, slot in enumerate(slots) if slot is not None]
    spots = [(i, token, bias) for i, row in enumerate(rows) for token, bias in row.get("bias", {}).items()]
    banned = [(i, token) for i, row in enumerate(rows) for token in row.get("banned", [])]

    def of(name: str, neutral: float) -> np.ndarray:
        return np.array([rows[i].get(name, neutral) for i in penalised], dtype=np.float32)

    greedy = SamplingColumns.greedy(len(rows))
    return SamplingColumns(
        draw_params=greedy.draw_params,
        positions=greedy.positions,
        penalties=Penalties(
            ints(*penalised),
            ints(*(slots[i] for i in penalised)),  # type: ignore[arg-type]
            of("frequency", 0),
            of("presence", 0),
            of("repetition", 1),
        )
        if penalised
        else None,
        biased=LogitEntries(ints(*(s[0] for s in spots)), ints(*(s[1] for s in spots))) if spots else None,
        biases=np.array([s[2] for s in spots], dtype=np.float32) if spots else None,
        banned=LogitEntries(ints(*(b[0] for b in banned)), ints(*(b[1] for b in banned))) if banned else None,
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("vocabulary", [1, 2, 63, 64, 65, 127, 1000])
@pytest.mark.parametrize("num_rows", [1, 3, 17])
def test_steps_equal_the_naive_reference(kernel: SamplingKernel, vocabulary: int, num_rows: int):
    random = np.random.default_rng(vocabulary * 100 + num_rows)
    epilogue = make_epilogue(num_rows + 1, vocabulary, kernel)
    prompts = [random.integers(0, vocabulary, 5).tolist() if i % 2 else [] for i in range(num_rows)]
    outputs = [random.integers(0, vocabulary, 7).tolist() if i % 3 else [] for i in range(num_rows)]
    slots: list[int | None] = [None if i % 5 == 4 else num_rows - i for i in range(num_rows)]
    rows: list[dict[str, Any]] = [
        {
            "frequency": float(random.uniform(-2, 2)),
            "presence": float(random.uniform(-2, 2)),
            "repetition": float(random.uniform(1e-6, 2)),
            "bias": {int(token): float(random.uniform(-9, 9)) for token in random.integers(0, vocabulary, 2)},
            "banned": [0] if vocabulary > 1 and i % 4 == 1 else [],
        }
        for i in range(num_rows)
    ]
    for i, slot in enumerate(slots):
        if slot is None:
            rows[i] |= {"frequency": 0.0, "presence": 0.0, "repetition": 1.0}
    for i, slot in enumerate(slots):
        if slot is not None:
            epilogue.reset_penalties(PenaltyReset(slot, ints(*outputs[i]), ints(*prompts[i])))
    for _ in range(4):
        logits = (random.standard_normal((num_rows, vocabulary)) * 5).astype(np.float32)
        tensor = torch.from_numpy(logits.copy())
        tokens = draw(epilogue, tensor, columns_of(rows, slots)).tokens
        for i in range(num_rows):
            expected = naive(logits[i], outputs[i], prompts[i], rows[i])
            np.testing.assert_allclose(tensor[i].numpy(), expected, rtol=2e-6, atol=2e-5)
            assert int(tokens[i]) == int(tensor[i].argmax())
            outputs[i].append(int(tokens[i]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_count_stops_at_255_and_never_wraps(kernel: SamplingKernel):
    epilogue = make_epilogue(2, 4, kernel)
    epilogue.reset_penalties(PenaltyReset(1, np.full(254, 2, dtype=np.int32), ints()))
    seen = []
    for _ in range(4):
        logits = torch.tensor([[0.0, 0.0, 1000.0, 0.0]])
        draw(epilogue, logits, columns_of([{"frequency": 1.0}], [1]))
        seen.append(float(logits[0, 2]))
    assert seen == [746.0, 745.0, 745.0, 745.0]


def test_a_penalty_reset_forgets_the_slots_last_owner():
    epilogue = make_epilogue(2, 40, reference)
    epilogue.reset_penalties(PenaltyReset(1, ints(1, 2, 3), ints(4, 39)))
    epilogue.reset_penalties(PenaltyReset(1, ints(5), ints()))
    logits = torch.ones(1, 40)
    draw(epilogue, logits, columns_of([{"presence": 1.0, "repetition": 2.0}], [1]))
    assert torch.nonzero(logits[0] != 1).flatten().tolist() == [5]


def test_a_mask_holds_whatever_bias_says():
    logits = torch.zeros(300, 4)
    rows = [{"bias": {0: 100.0, 2: 100.0}, "banned": [0, 2]}] * 300
    columns = columns_of(rows, [None] * 300)
    columns.draw_params.temperature[:] = 1.0
    columns.draw_params.seeds[:] = np.arange(300)
    assert set(draw(make_epilogue(1, 4, reference), logits, columns).tokens.tolist()) == {1, 3}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_grammar_chooses_last_and_only_in_its_rows(kernel: SamplingKernel):
    logits = torch.zeros(3, 40)
    columns = columns_of([{"bias": {0: 100.0}}] * 3, [None] * 3)
    columns = replace(columns, masked=ints(2, 0))
    allowed = np.zeros((2, 2), np.int32)
    allowed[0, 1], allowed[1, 0] = 1 << (39 - 32), 1 << 5
    drawn = make_epilogue(1, 40, kernel).run(logits, columns, torch.arange(1, 4), allowed)
    assert drawn.tokens.tolist() == [5, 0, 39]


@pytest.mark.parametrize("repetition", [1e-6, 0.5, 2.0])
def test_compiled_and_reference_agree_to_rounding_and_touch_the_same_rows(repetition: float):
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(9, 32_000, generator=random) * 10
    counts = (torch.randint(0, 4000, (12, 32_000), generator=random) == 0).to(torch.uint8) * 3
    seen = torch.randint(-(2**31), 2**31 - 1, (12, 1000), generator=random, dtype=torch.int32)
    rows, slots = torch.tensor([8, 0, 3], dtype=torch.int32), torch.tensor([11, 4, 0], dtype=torch.int32)
    columns = (torch.tensor([0.5, -2.0, 0.0]), torch.tensor([0.25, 1.0, 2.0]), torch.full((3,), repetition))
    plain, fast = logits.clone(), logits.clone()
    reference.penalise(plain, rows, slots, *columns, counts, seen)
    compiled_kernels().penalise(fast, rows, slots, *columns, counts, seen)
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=1e-6)
    assert torch.equal(plain[[1, 2, 4, 5, 6, 7]], logits[[1, 2, 4, 5, 6, 7]])


def test_a_row_in_which_everything_is_forbidden_is_told_apart_from_a_broken_one():
    logits = torch.zeros(3, 4)
    logits[1] = torch.nan
    drawn = draw(make_epilogue(1, 4, reference), logits, columns_of([{"banned": [0, 1, 2, 3]}, {}, {}], [None] * 3))
    broken, failures = drawn.outcome(drawn.finite)
    assert broken == (0, 1) and failures.keys() == {0}
    assert failures[0].status == 400 and "no token is left" in failures[0].message
