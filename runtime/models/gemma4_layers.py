"""The block of Gemma 4: Gemma 3's, and after its MLP the token's embeddings of this layer, and a scale of all of it.

Where a layer has experts, they stand beside the MLP, and their sum is normed as one. Knows no names of a checkpoint.
T new tokens, N hidden size, L layers, P numbers of a layer's own embeddings.
"""

import torch
from torch import Tensor, nn

from ramet.runtime.layers.modules import Embedding, Linear, RMSNorm
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.decoder import Decoder, experts_of, norm_of
from ramet.runtime.models.sandwich import SandwichLayer
from ramet.runtime.models.shape import LayerEmbeds, ModelShape


class LayerEnd(nn.Module):
    """What the residual sum is multiplied by when the layer is done: float32 whatever the model's dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_scalar = nn.Parameter(torch.empty(1, dtype=torch.float32), requires_grad=False)


class OwnEmbeds(nn.Module):
    """x [T, N] and a layer's embeddings [T, P] of the same tokens -> [T, N]"""

    def __init__(self, size: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.gate = Linear(shape.hidden, size, bias=False, dtype=dtype)
        self.projection = Linear(size, shape.hidden, bias=False, dtype=dtype)
        self.norm = norm_of(shape, dtype, ops)
        self._tanh, self._ops = shape.activation == "gelu_pytorch_tanh", ops

    def forward(self, x: Tensor, embeds: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.projection(self._ops.gelu_by(self.gate(x), embeds, self._tanh)))
        return normed


class Gemma4Layer(SandwichLayer):
    def __init__(self, layer: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__(layer, shape, dtype, ops)
        of, embeds = shape.layers[layer].experts, shape.layer_embeds
        self.experts = None if of is None else experts_of(of, shape, dtype, ops)
        if of is not None:
            self.router_norm, self.experts_norm = norm_of(shape, dtype, ops), norm_of(shape, dtype, ops)
            self.dense_out_norm, self.experts_out_norm = norm_of(shape, dtype, ops), norm_of(shape, dtype, ops)
        self.embeds = None if embeds is None else OwnEmbeds(embeds.size, shape, dtype, ops)
        self.end = LayerEnd()
        self._ops = ops

    def feed(self, x: Tensor, residual: Tensor, beside: Tensor | None = None) -> Tensor:
        x = self.mlp_out_norm(self._fed(self.mlp_norm.add(x, residual), residual))
        if self.embeds is not None:
            assert beside is not None, "each layer has embeddings of its own"
            self._ops.add_scaled(residual, x, None)
            x = self.embeds(residual, beside)
        for part in (x, residual):
            self._ops.add_scaled(part, None, self.end.layer_scalar)
        return x

    def _fed(self, x: Tensor, residual: Tensor) -> Tensor:
        """x [T, N] is normed for the MLP; experts and their router have norms of their own."""
        fed: Tensor = self.mlp(x)
        if self.experts is None:
            return fed
        fed = self.dense_out_norm(fed)
        routed = self.experts(self.experts_norm(residual), self.router_norm(residual))
        self._ops.add_scaled(fed, self.experts_out_norm(routed), None)
        return fed


class TokenEmbeds(nn.Module):
    """What layers get of a token, half by its id and half by its embedding: [T, L * P]"""

    def __init__(self, of: LayerEmbeds, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        total = of.size * shape.num_layers
        self.table = Embedding(of.vocab_size, total, scale=of.size**0.5, tied=False, dtype=dtype, ops=ops)
        self.projection = Linear(shape.hidden, total, bias=False, dtype=dtype)
        # what is normed is N ** -0.5 of the projection, which is the same with a larger number beside its squares
        eps = shape.rms_eps * shape.hidden
        self.norm = RMSNorm(of.size, eps, dtype=dtype, ops=ops, wide=shape.wide_norms)
        half = torch.full((1,), 2.0**-0.5, dtype=torch.float32, device="cpu")
        self._half, self._size, self._ops = half, of.size, ops

    def forward(self, token_ids: Tensor, embedded: Tensor) -> Tensor:
        """token_ids [T] int64, embedded [T, N]"""
        if self._half.device != embedded.device:
            self._half = self._half.to(embedded.device)
        made = self.norm(self.projection(embedded).view(-1, self._size)).view(len(embedded), -1)
        self._ops.add_scaled(made, self.table(token_ids), self._half)
        return made


class Gemma4Decoder(Decoder):
    layer_class = Gemma4Layer

    def __init__(self, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__(shape, dtype, ops)
        if shape.layer_embeds is not None:
            self.token_embeds = TokenEmbeds(shape.layer_embeds, shape, dtype, ops)
