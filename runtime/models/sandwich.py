"""A decoder whose layers norm what attention and MLP take and what they return: Gemma 2 and 3, GLM-4."""

import torch
from torch import Tensor

from ramet.kernels.reference import RopeTables
from ramet.runtime.attention.base import ForwardInputs, StepBackend
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.decoder import Decoder, DecoderLayer, norm_of
from ramet.runtime.models.shape import ModelShape


class SandwichLayer(DecoderLayer):
    """What attention and MLP return is normed before it joins the residual sum."""

    def __init__(self, layer: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__(layer, shape, dtype, ops)
        self.attention_out_norm = norm_of(shape, dtype, ops)
        self.mlp_out_norm = norm_of(shape, dtype, ops)

    def attend(self, held: Tensor, rope: RopeTables, attention: StepBackend, inputs: ForwardInputs) -> Tensor:
        return self.attention_out_norm(super().attend(held, rope, attention, inputs))

    def feed(self, x: Tensor, residual: Tensor, beside: Tensor | None = None) -> Tensor:
        return self.mlp_out_norm(super().feed(x, residual, beside))


class SandwichDecoder(Decoder):
    layer_class = SandwichLayer
