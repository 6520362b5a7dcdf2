"""Seeded random weights, for measuring without a checkpoint (`--load-format dummy`).

Decides their scale: activations stay near one, so nothing overflows in float16 and outputs vary. Every parameter has
its own stream, drawn from the seed and its name: a model with other layers keeps the ones it shares.
"""

import zlib

import torch
from torch import Tensor, nn

from ramet.runtime.layers.experts import ExpertScales
from ramet.runtime.layers.modules import RMSNorm
from ramet.runtime.models.gemma4_layers import LayerEnd


def fill_random(model: nn.Module, seed: int) -> None:
    """Fill every parameter, already on its device and in its dtype."""
    with torch.inference_mode():
        for name, parameter in model.named_parameters():
            fill(name, parameter.data, seed)
        for module in model.modules():
            if isinstance(module, RMSNorm):
                module.weight.data.fill_(module.neutral)
            elif isinstance(module, ExpertScales | LayerEnd):
                for factor in module.parameters():
                    factor.data.fill_(1.0)


def fill(name: str, tensor: Tensor, seed: int) -> None:
    """WRITES tensor: matrices are normal with std 1 / sqrt(columns), biases zero; norms come after."""
    if tensor.ndim == 1:
        tensor.zero_()
        return
    generator = torch.Generator(tensor.device).manual_seed(zlib.crc32(name.encode(), seed & 0xFFFFFFFF))
    tensor.normal_(0.0, tensor.shape[-1] ** -0.5, generator=generator)
