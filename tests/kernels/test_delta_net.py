"""Gated delta-net layers by Triton kernels, in the interpreter, equal the oracle: outputs, states, saves, cuts."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from delta_cases import Layer, close, column, layer
from samples import sampled

from ramet.kernels import reference
from ramet.kernels.delta_net import _softplus, delta_net
from ramet.kernels.reference_delta import DeltaShape, PlacedRows, StateRows
from ramet.kernels.triton_there import tl, triton

SHAPES = [
    DeltaShape(key_heads=1, value_heads=1, key=16, value=128, taps=4),
    DeltaShape(key_heads=1, value_heads=2, key=24, value=37, taps=2),
    DeltaShape(key_heads=2, value_heads=2, key=128, value=24, taps=3),
    DeltaShape(key_heads=1, value_heads=4, key=16, value=16, taps=4),
]
TYPES = [torch.float32, torch.bfloat16]


def rows_of(longest: int) -> StateRows:
    """Rows of 1, 5, 0, so many and 2 tokens: continued, fresh, nobody's, fresh, continued; some with snapshots."""
    num = column(1, 5, 0, longest, 2)
    return StateRows(
        column(3, 1, 0, 5, 2),
        num,
        num + column(8, 0, 0, 0, 38),
        save_at=np.array([[0, 0], [2, 5], [0, 0], [longest - 1, 1], [1, 0]], np.int32),
        save_to=np.array([[0, 0], [6, 7], [0, 0], [8, 4], [0, 0]], np.int32),
    )


def both(ours: Layer, at: StateRows) -> tuple[torch.Tensor, torch.Tensor, Layer]:
    """By the kernels, which write its states; by the oracle; and the layer with the states that this wrote."""
    theirs = ours.copied()
    got = delta_net(ours.x, ours.gates, ours.of, ours.weights, ours.states, at)
    return got, reference.delta_net(theirs.x, theirs.gates, ours.of, ours.weights, theirs.states, at), theirs


@pytest.mark.parametrize(("of", "dtype"), sampled(product(SHAPES, TYPES), 4))
def test_a_step_gives_what_the_oracle_gives(of: DeltaShape, dtype: torch.dtype) -> None:
    longest = 65 if of == SHAPES[0] else 6
    ours = layer(of, dtype, 8 + longest)
    got, wanted, theirs = both(ours, rows_of(longest))
    assert close(got, wanted, dtype)
    assert torch.equal(ours.states.last[1:], theirs.states.last[1:])  # place 0 is nobody's
    assert close(ours.states.matrix[1:], theirs.states.matrix[1:], dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gates_that_forget_everything_or_nothing(dtype: torch.dtype) -> None:
    ours, tokens = layer(SHAPES[1], dtype, 30), torch.arange(30)
    for head in range(2):
        ours.gates[:, head] += 30.0 * (tokens % 7 == 3) - 30.0 * (tokens % 5 == 2)
        ours.gates[:, 2 + head] += 300.0 * (tokens % 11 == 4) - 300.0 * (tokens % 3 == head)
    got, wanted, theirs = both(ours, StateRows(column(3), column(30), column(40)))
    assert torch.isfinite(got).all() and close(got, wanted, dtype)
    assert close(ours.states.matrix, theirs.states.matrix, dtype)


def test_a_prompt_gives_the_same_bits_however_it_is_cut() -> None:
    of = SHAPES[1]
    whole = layer(of, torch.float32, 20)
    parts = whole.copied()
    saves = np.array([[5]], np.int32), np.array([[7]], np.int32)
    args = whole.x, whole.gates, of, whole.weights, whole.states
    wanted = delta_net(*args, StateRows(column(2), column(20), column(20), *saves))
    rest = delta_net(
        parts.x[5:], parts.gates[5:], of, parts.weights, whole.states, StateRows(column(7), column(15), column(20))
    )
    assert torch.equal(rest, wanted[5:])
    assert torch.equal(whole.states.matrix[7], whole.states.matrix[2])
    assert torch.equal(whole.states.last[7], whole.states.last[2])
    one_by_one = [
        delta_net(
            parts.x[t : t + 1], parts.gates[t : t + 1], of, parts.weights, parts.states,
            StateRows(column(4), column(1), column(t + 1)),
        )
        for t in range(20)
    ]  # fmt: skip
    assert torch.equal(torch.cat(one_by_one), wanted)


def test_rows_that_decode_are_read_where_they_lie_and_padding_is_harmless() -> None:
    """The host's columns say nothing: a graph has been recorded with others."""
    ours = layer(SHAPES[3], torch.float32, 4)
    theirs = ours.copied()
    rows, lens = (torch.tensor(numbers, dtype=torch.int32) for numbers in ([3, 8, 0, 0], [9, 1, 1, 1]))
    unknown = StateRows(column(0, 0, 0, 0), column(1, 1, 1, 1), column(1, 1, 1, 1))
    at = replace(unknown, placed=PlacedRows.decoding(rows, lens))
    got = delta_net(ours.x, ours.gates, ours.of, ours.weights, ours.states, at)
    meant = StateRows(column(3, 8), column(1, 1), column(9, 1))
    wanted = reference.delta_net(theirs.x[:2], theirs.gates[:2], ours.of, ours.weights, theirs.states, meant)
    assert close(got[:2], wanted, torch.float32)
    assert torch.equal(ours.states.last[1:], theirs.states.last[1:])
    assert close(ours.states.matrix[1:], theirs.states.matrix[1:], torch.float32)


def test_nothing_comes_of_no_tokens() -> None:
    ours = layer(SHAPES[0], torch.float32, 0)
    assert delta_net(ours.x, ours.gates, ours.of, ours.weights, ours.states, rows_of(65)).shape == (0, 128)


def test_columns_of_rows_are_aligned() -> None:
    at = rows_of(65)
    placed = PlacedRows.of(at, torch.device("cpu"))
    for each in (placed.rows, placed.firsts, placed.num_new, placed.seq_lens, placed.row_of, placed.save_at):
        assert (each.data_ptr() - placed.rows.data_ptr()) % 16 == 0
    assert placed.firsts.tolist() == [0, 1, 6, 6, 71] and placed.row_of.tolist() == [0, *[1] * 5, *[3] * 65, 4, 4]
    assert placed.save_at.tolist() == at.save_at.tolist() and placed.save_to.tolist() == at.save_to.tolist()


@triton.jit
def _apply(x, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.store(out + at, _softplus(tl.load(x + at)))


def test_softplus_of_small_and_large_numbers() -> None:
    x = torch.cat((torch.linspace(-60, 60, 510), torch.tensor([-1e4, 1e4])))
    out = torch.empty_like(x)
    _apply[(1,)](x, out, BLOCK=512)
    expected = torch.nn.functional.softplus(x.double(), threshold=1000).float()
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=0)
