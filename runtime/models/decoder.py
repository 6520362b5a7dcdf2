"""The pre-norm decoder that most families share: embed, then attention and gated MLP per layer, then norm and head.

Decides the order of blocks and where the residual sum is fused with a norm. Knows no checkpoint names and no pool.
A family is a subclass that swaps a block or changes the shape. Weights are not initialised here.
T new tokens, N hidden size, Q drawing rows, V vocabulary.
"""

import torch
from torch import Tensor, nn

from ramet.runtime.attention.base import AttentionBackend, ForwardInputs
from ramet.runtime.layers.activation import gated_activation
from ramet.runtime.layers.attention import SelfAttention
from ramet.runtime.layers.embedding import Embedding
from ramet.runtime.layers.linear import Linear
from ramet.runtime.layers.logits import final_states
from ramet.runtime.layers.norm import RMSNorm
from ramet.runtime.layers.ops import Ops
from ramet.runtime.layers.rope import rope_tables
from ramet.runtime.models.shape import ModelShape


class GatedMLP(nn.Module):
    """x [T, N] -> [T, N]. `gate_up` packs both projections: rows are gate, then up."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.gate_up = Linear(shape.hidden, 2 * shape.intermediate, bias=shape.mlp_bias, dtype=dtype)
        self.down = Linear(shape.intermediate, shape.hidden, bias=shape.mlp_bias, dtype=dtype)
        self._activation = gated_activation(shape.activation, ops)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self._activation(self.gate_up(x)))


class DecoderLayer(nn.Module):
    def __init__(self, layer: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.input_norm = RMSNorm(shape.hidden, shape.rms_eps, dtype=dtype, ops=ops)
        self.attention = SelfAttention(
            layer,
            hidden=shape.hidden,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            qkv_bias=shape.qkv_bias,
            o_bias=shape.o_bias,
            dtype=dtype,
            ops=ops,
        )
        self.mlp_norm = RMSNorm(shape.hidden, shape.rms_eps, dtype=dtype, ops=ops)
        self.mlp = GatedMLP(shape, dtype, ops)

    def forward(
        self,
        x: Tensor | None,
        residual: Tensor,
        rope: tuple[Tensor, Tensor],
        attention: AttentionBackend,
        inputs: ForwardInputs,
    ) -> Tensor:
        """x [T, N] is what the layer before added last (None before the first); residual [T, N] is WRITTEN."""
        x = self.input_norm(residual) if x is None else self.input_norm.add(x, residual)
        x = self.attention(x, rope, attention, inputs)
        return self.mlp(self.mlp_norm.add(x, residual))


class Decoder(nn.Module):
    """`place_rope` once after the weights are in; then `hidden_states` and `logits` for every step."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.shape = shape
        self.embed = Embedding(shape.vocab_size, shape.hidden, dtype=dtype)
        self.layers = nn.ModuleList(DecoderLayer(i, shape, dtype, ops) for i in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.rms_eps, dtype=dtype, ops=ops)
        self.head = None if shape.tied_head else Linear(shape.hidden, shape.vocab_size, bias=False, dtype=dtype)
        self._rope: tuple[Tensor, Tensor] | None = None

    def place_rope(self, num_positions: int, device: torch.device) -> None:
        self._rope = rope_tables(self.shape.rope, num_positions, device)

    def hidden_states(self, inputs: ForwardInputs, attention: AttentionBackend) -> tuple[Tensor, Tensor]:
        """(x, residual), both [T, N]; their sum goes into the final norm."""
        residual = self.embed(inputs.token_ids)
        for first, values in inputs.embeds:
            residual[first : first + len(values)] = values
        x: Tensor | None = None
        for layer in self.layers:
            x = layer(x, residual, self._rope, attention, inputs)
        assert x is not None, "a model has at least one layer"
        return x, residual

    def final_states(self, x: Tensor, residual: Tensor, at: Tensor) -> Tensor:
        """[Q, N] after the final norm, for the tokens at [Q] of the T."""
        return final_states(x, residual, at, self.norm)

    def logits(self, states: Tensor) -> Tensor:
        """From final states [Q, N] to [Q, V] float32, the caller's to write."""
        return (self.head or self.embed.scores)(states).float()
