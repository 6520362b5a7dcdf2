"""The activation of a gated MLP over its packed [T, 2 F] gate and up values -> [T, F]."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.ops import Ops

Gated = Callable[[Tensor], Tensor]


def gated_activation(name: str, ops: Ops) -> Gated:
    match name:
        case "silu":
            return ops.silu_mul
        case "gelu":
            return partial(ops.gelu_mul, tanh=False)
        case "gelu_pytorch_tanh":
            return partial(ops.gelu_mul, tanh=True)
        case _:
            raise ConfigError(f"hidden_act is {name!r}, must be silu, gelu or gelu_pytorch_tanh")
