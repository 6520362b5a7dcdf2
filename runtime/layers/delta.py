"""A gated delta-net layer (Yang et al. 2024): in the place of attention, a state of fixed size that each token changes.

Decides which projections there are; the arithmetic is the ops'. Keeps no keys: what later tokens need of earlier ones
is in the state pool, at the place of their row. T tokens, N in and out, C channels, W taps, H heads of values.
"""

import torch
from torch import Tensor, nn

from ramet.kernels.reference import RopeTables
from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights
from ramet.runtime.attention.base import ForwardInputs, StepBackend
from ramet.runtime.layers.modules import Linear, RMSNorm
from ramet.runtime.layers.ops import Ops
from ramet.runtime.layers.token_mixer import TokenMixer


class Decay(nn.Module):
    """How fast the state of each head forgets: float32 whatever the model's dtype."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.empty(heads, dtype=torch.float32), requires_grad=False)
        self.dt_bias = nn.Parameter(torch.empty(heads, dtype=torch.float32), requires_grad=False)


class CausalConv(nn.Module):
    """A convolution of each channel by itself. `weight` [C, 1, W]"""

    def __init__(self, channels: int, taps: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, taps, dtype=dtype), requires_grad=False)


class DeltaNet(TokenMixer[StepBackend]):
    """x [T, N] -> [T, N]. `project` packs all that is made of a token: rows are q, k, v, z.

    `gates`, which are not rounded to fewer bits, say what a state takes of a token and what it forgets: rows are b, a.
    """

    def __init__(self, size: int, of: DeltaShape, eps: float, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.project = Linear(size, of.inputs, bias=False, dtype=dtype)
        self.gates = Linear(size, 2 * of.value_heads, bias=False, dtype=dtype, may_round=False)
        self.conv = CausalConv(of.channels, of.taps, dtype)
        self.decay = Decay(of.value_heads)
        self.norm = RMSNorm(of.value, eps, dtype=dtype, ops=ops)
        self.out = Linear(of.values, size, bias=False, dtype=dtype)
        self._of, self._eps, self._ops = of, eps, ops
        self._states: DeltaStates | None = None
        self._weights: DeltaWeights | None = None  # once they are in

    def place_states(self, states: DeltaStates) -> None:
        self._states = states
        self._weights = DeltaWeights(
            self.conv.weight, self.decay.A_log, self.decay.dt_bias, self.norm.weight, self._eps
        )

    def store(self, x: Tensor, rope: RopeTables, attention: StepBackend, inputs: ForwardInputs) -> Tensor:
        """Every token changes the state; what is read of it is [T, P]."""
        assert self._states is not None and self._weights is not None, "the states have no place yet"
        assert inputs.state_rows is not None, "a model of layers with states has rows of them in every step"
        x, gates = self.project(x), self.gates(x)
        return self._ops.delta_net(x, gates, self._of, self._weights, self._states, inputs.state_rows)

    def attend(self, held: Tensor, rope: RopeTables, attention: StepBackend, inputs: ForwardInputs) -> Tensor:
        return self.out(held)
