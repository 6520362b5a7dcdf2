"""Gated delta-net layers with random weights, states and inputs, and how near their results are."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights

NEAR = {torch.float32: 2e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}
PLACES = 9


class Layer(NamedTuple):
    of: DeltaShape
    weights: DeltaWeights
    states: DeltaStates
    x: Tensor
    gates: Tensor

    def copied(self) -> "Layer":
        return self._replace(states=DeltaStates(self.states.last.clone(), self.states.matrix.clone()))


def layer(of: DeltaShape, dtype: torch.dtype, tokens: int) -> Layer:
    chance = torch.Generator().manual_seed(of.inputs)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=chance)

    weights = DeltaWeights(
        random(of.channels, 1, of.taps).to(dtype), random(of.value_heads), random(of.value_heads),
        (random(of.value) + 1).to(dtype), 1e-6,
    )  # fmt: skip
    matrix = random(PLACES, of.value_heads, of.key, of.value) * 0.3
    states = DeltaStates(random(PLACES, of.channels, of.taps - 1).to(dtype), matrix)
    wide, gates = random(tokens, of.inputs + 3).to(dtype), random(tokens, 2 * of.value_heads).to(dtype)
    return Layer(of, weights, states, wide[:, : of.inputs], gates)


def column(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def close(got: Tensor, wanted: Tensor, dtype: torch.dtype) -> bool:
    return torch.allclose(
        got.float(), wanted.float(), rtol=10 * NEAR[dtype], atol=NEAR[dtype] * max(1, float(wanted.abs().max()))
    )
