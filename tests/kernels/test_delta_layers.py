"""Gated delta-net layers by compiled kernels equal the oracle: outputs, states, saves, cuts of a prompt."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from compiled import compiled_kernels
from delta_cases import NEAR, close, column, layer

from ramet.kernels import reference
from ramet.kernels.reference_delta import DeltaShape, StateRows

SHAPES = [
    DeltaShape(key_heads=2, value_heads=4, key=16, value=24, taps=4),
    DeltaShape(key_heads=1, value_heads=1, key=1, value=1, taps=2),
    DeltaShape(key_heads=3, value_heads=3, key=127, value=129, taps=4),
    DeltaShape(key_heads=2, value_heads=6, key=64, value=128, taps=5),
]


ROWS = StateRows(column(3, 1, 5, 2), column(1, 1, 7, 12), column(1, 30, 7, 40))
SAVES = replace(
    ROWS,
    save_at=np.array([[0, 0], [0, 0], [7, 0], [5, 9]], np.int32),
    save_to=np.array([[0, 0], [0, 0], [6, 0], [7, 8]], np.int32),
)  # fmt: skip


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("of", SHAPES)
def test_a_step_gives_what_the_oracle_gives(of: DeltaShape, dtype: torch.dtype) -> None:
    for at in (ROWS, SAVES):
        ours, theirs = layer(of, dtype, 21), layer(of, dtype, 21)
        got = compiled_kernels().delta_net(ours.x, ours.gates, of, ours.weights, ours.states, at)
        wanted = reference.delta_net(theirs.x, theirs.gates, of, theirs.weights, theirs.states, at)
        assert close(got, wanted, dtype)
        assert torch.equal(ours.states.last, theirs.states.last)
        assert close(ours.states.matrix, theirs.states.matrix, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("of", SHAPES)
def test_a_prompt_gives_what_the_oracle_gives_whatever_its_gates_forget(of: DeltaShape, dtype: torch.dtype) -> None:
    """Gates that are left open, that forget everything at once, and that correct everything or nothing."""
    ours, tokens = layer(of, dtype, 75), torch.arange(75)
    for head in range(of.value_heads):
        ours.gates[:, head] += 30.0 * (tokens % 7 == 3) - 30.0 * (tokens % 5 == 2)
        ours.gates[:, of.value_heads + head] += 300.0 * (tokens % 11 == 4) - 300.0 * (tokens % 3 == head % 3)
    theirs = ours.copied()
    at = StateRows(column(3, 5), column(2, 73), column(9, 80))
    got = compiled_kernels().delta_net(ours.x, ours.gates, of, ours.weights, ours.states, at)
    wanted = reference.delta_net(theirs.x, theirs.gates, of, theirs.weights, theirs.states, at)
    assert torch.isfinite(got).all() and close(got, wanted, dtype)
    assert close(ours.states.matrix, theirs.states.matrix, dtype)


@pytest.mark.parametrize("tokens", [12, 75])
@pytest.mark.parametrize("of", SHAPES)
def test_a_saved_state_goes_on_as_if_nothing_was_between(of: DeltaShape, tokens: int) -> None:
    """Bit for bit, however a prompt is cut: whole, from a state that was saved on, and token by token."""
    ops, whole = compiled_kernels(), layer(of, torch.float32, tokens)
    parts = whole.copied()
    saves = np.array([[tokens - 2, 5, 0]], np.int32), np.array([[8, 7, 0]], np.int32)
    at = StateRows(column(2), column(tokens), column(tokens), *saves)
    wanted = ops.delta_net(whole.x, whole.gates, of, whole.weights, whole.states, at)
    for start, place in ((5, 7), (tokens - 2, 8)):
        rest = parts._replace(states=whole.states)
        after = StateRows(column(place), column(tokens - start), column(tokens))
        got = ops.delta_net(rest.x[start:], rest.gates[start:], of, rest.weights, rest.states, after)
        assert torch.equal(got, wanted[start:])
        assert torch.equal(whole.states.matrix[place], whole.states.matrix[2])
        assert torch.equal(whole.states.last[place], whole.states.last[2])
    one_by_one = [
        ops.delta_net(
            parts.x[t : t + 1], parts.gates[t : t + 1], of, parts.weights, parts.states,
            StateRows(column(4), column(1), column(t + 1)),
        )
        for t in range(tokens)
    ]  # fmt: skip
    assert torch.equal(torch.cat(one_by_one), wanted)


def test_padding_behind_other_rows_changes_nothing() -> None:
    of = SHAPES[0]
    ours, theirs = layer(of, torch.float32, 4), layer(of, torch.float32, 4)
    padded = StateRows(column(3, 0, 0, 0), column(1, 1, 1, 1), column(9, 1, 1, 1))
    ops = compiled_kernels()
    got = ops.delta_net(ours.x, ours.gates, of, ours.weights, ours.states, padded)
    alone = StateRows(column(3), column(1), column(9))
    wanted = ops.delta_net(theirs.x[:1], theirs.gates[:1], of, theirs.weights, theirs.states, alone)
    assert torch.equal(got[:1], wanted) and not got[1:].any()
    assert torch.equal(ours.states.matrix, theirs.states.matrix) and torch.equal(ours.states.last, theirs.states.last)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("size", [1, 17, 128])
def test_gates_multiply_by_their_sigmoids(dtype: torch.dtype, size: int) -> None:
    x, wide = torch.randn(5, size).to(dtype), torch.randn(5, size + 7).to(dtype) * 4
    got, wanted = compiled_kernels().sigmoid_mul(x, wide[:, :size]), reference.sigmoid_mul(x, wide[:, :size])
    assert close(got, wanted, dtype)
