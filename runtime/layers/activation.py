"""The activation of a gated MLP over its packed [T, 2 F] gate and up values -> [T, F]."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.ops import Ops

Gated = Callable[[Tensor], Tensor]


def gated_activation(name: str, ops: Ops) -> Gated:
    match name:
        case "silu":
            return ops.silu_mul
        case "gelu":
            return lambda gate_up: _gelu_mul(gate_up, "none")
        case "gelu_pytorch_tanh":
            return lambda gate_up: _gelu_mul(gate_up, "tanh")
        case _:
            raise ConfigError(f"hidden_act is {name!r}, must be silu, gelu or gelu_pytorch_tanh")


def _gelu_mul(gate_up: Tensor, approximate: str) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.gelu(gate, approximate=approximate) * up
