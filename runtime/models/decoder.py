"""The pre-norm decoder that most families share: embed, then attention and gated MLP per layer, then norm and head.

Decides the order of blocks and where the residual sum is fused with a norm. Knows no checkpoint names and no pool.
A family whose block differs names its own in a subclass. Weights are not initialised here.
T new tokens, N hidden size, Q drawing rows, V vocabulary.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from ramet.kernels.reference import RopeTables
from ramet.runtime.attention.base import ForwardInputs, StepBackend
from ramet.runtime.cache.state_pool import StatePool
from ramet.runtime.layers.activation import gated_activation
from ramet.runtime.layers.adapted import TokenAdapters
from ramet.runtime.layers.delta import DeltaNet
from ramet.runtime.layers.experts import Experts, ExpertsShape
from ramet.runtime.layers.latent_attention import LatentSelfAttention
from ramet.runtime.layers.modules import AttentionShape, Embedding, GatedMLP, Linear, RMSNorm, SelfAttention
from ramet.runtime.layers.ops import Ops
from ramet.runtime.layers.rope import AxesRope, RopeShape, rope_tables
from ramet.runtime.layers.token_mixer import TokenMixer
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.shape import ModelShape


def norm_of(shape: ModelShape, dtype: torch.dtype, ops: Ops, size: int | None = None) -> RMSNorm:
    """Of a layer's input, or of so many numbers."""
    wide, plus_one = shape.wide_norms, shape.norm_plus_one
    return RMSNorm(size or shape.hidden, shape.rms_eps, dtype=dtype, ops=ops, wide=wide, plus_one=plus_one)


def _head_norms(size: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> tuple[RMSNorm, RMSNorm]:
    return norm_of(shape, dtype, ops, size), norm_of(shape, dtype, ops, size)


def attention_of(layer: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> TokenMixer[Any]:
    """What of a layer sees other tokens: [T, N] -> [T, N]"""
    delta = shape.layers[layer].delta
    if delta is not None:
        return DeltaNet(shape.hidden, delta, shape.rms_eps, dtype, ops)
    if shape.latent is not None:
        options: Any = dict(bias=shape.qkv_bias, dtype=dtype, ops=ops)
        return LatentSelfAttention(layer, size=shape.hidden, heads=shape.heads, sizes=shape.latent, **options)
    own, kv = shape.layers[layer], shape.kv_shapes[layer]
    of = AttentionShape(
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=kv.heads,
        head_dim=kv.key,
        qkv_bias=shape.qkv_bias,
        o_bias=shape.o_bias,
        sinks=own.attention.sinks,
        gated=shape.gated_attention,
        v_norm=own.v_norm,
    )
    return SelfAttention(layer, of, _head_norms(kv.key, shape, dtype, ops) if own.qk_norm else None, dtype, ops)


def mlp_of(layer: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> nn.Module:
    """[T, N] -> [T, N]: one MLP, or experts in its place."""
    own = shape.layers[layer]
    if own.experts is None or own.experts.beside:
        return dense_of(own.intermediate or shape.intermediate, shape, dtype, ops)
    return experts_of(own.experts, shape, dtype, ops)


def dense_of(intermediate: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> GatedMLP:
    options: Any = dict(activation=shape.activation, dtype=dtype, ops=ops)
    return GatedMLP(shape.hidden, intermediate, bias=shape.mlp_bias, **options)


def experts_of(of: ExpertsShape, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> Experts:
    if of.clamp is None:
        activation = gated_activation(shape.activation, ops)
    else:
        activation = partial(ops.clamped_mul, alpha=of.clamp.alpha, limit=of.clamp.limit)
    shared = dense_of(of.shared_intermediate, shape, dtype, ops) if of.shared_intermediate else None
    return Experts(shape.hidden, of, shared, activation, dtype, ops)


class DecoderLayer(nn.Module):
    def __init__(self, layer: int, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.input_norm = norm_of(shape, dtype, ops)
        self.attention = attention_of(layer, shape, dtype, ops)
        self.mlp_norm = norm_of(shape, dtype, ops)
        self.mlp = mlp_of(layer, shape, dtype, ops)

    def store(
        self, x: Tensor | None, residual: Tensor, rope: RopeTables, attention: StepBackend, inputs: ForwardInputs
    ) -> Tensor:
        """x [T, N] is what the layer before added last (None before the first); residual [T, N] is WRITTEN.

        Returns what `attend` reads of each token, which may be given for some of them alone.
        """
        x = self.input_norm(residual) if x is None else self.input_norm.add(x, residual)
        return self.attention.store(x, rope, attention, inputs)

    def attend(self, held: Tensor, rope: RopeTables, attention: StepBackend, inputs: ForwardInputs) -> Tensor:
        """held [T, P] of `store` -> [T, N]"""
        return self.attention.attend(held, rope, attention, inputs)

    def feed(self, x: Tensor, residual: Tensor, beside: Tensor | None = None) -> Tensor:
        """x [T, N] is what `attend` returned, each token by itself; residual [T, N] is WRITTEN.

        `beside` [T, size]: the layer's own embeddings of the tokens, of a model that has some.
        """
        fed: Tensor = self.mlp(self.mlp_norm.add(x, residual))
        return fed


class Decoder(CausalModel):
    """The families' own."""

    layer_class: type[DecoderLayer] = DecoderLayer

    def __init__(self, shape: ModelShape, dtype: torch.dtype, ops: Ops) -> None:
        super().__init__()
        self.shape = shape
        self.embed = Embedding(
            shape.vocab_size, shape.hidden, scale=shape.embed_scale, tied=shape.tied_head, dtype=dtype, ops=ops
        )
        self.layers = nn.ModuleList(self.layer_class(i, shape, dtype, ops) for i in range(shape.num_layers))
        self.norm = norm_of(shape, dtype, ops)
        self.head = None if shape.tied_head else Linear(shape.hidden, shape.vocab_size, bias=False, dtype=dtype)
        # (token ids [T], embedded tokens [T, N]) -> [T, layers * size], where layers have embeddings of their own
        self.token_embeds: nn.Module | None = None
        self.token_adapters = TokenAdapters()
        self._ops = ops
        self._ropes: list[RopeTables] = []  # of each layer
        self._axes: dict[RopeShape, AxesRope] = {}  # of those with sections

    @property
    def output(self) -> nn.Module:
        return self.head or self.embed

    def derive(self) -> None:
        for module in self.modules():
            if isinstance(module, LatentSelfAttention):
                module.absorb()
            elif isinstance(module, RMSNorm):
                module.derive()

    def place_rope(self, num_positions: int, device: torch.device) -> None:
        tables: dict[RopeShape, RopeTables] = {}
        for layer in self.shape.layers:
            if layer.rope not in tables:
                tables[layer.rope] = rope_tables(layer.rope, num_positions, device)
        self._ropes = [tables[layer.rope] for layer in self.shape.layers]
        self._axes = {rope: AxesRope(rope, device) for rope in tables if rope.sections}

    def _ropes_at(self, mrope_positions: Tensor) -> list[RopeTables]:
        """The tables of each layer for mrope_positions [3, T] int64: each token's own, in the order of the tokens."""
        tables = {rope: axes.tables(mrope_positions) for rope, axes in self._axes.items()}
        return [tables[layer.rope] for layer in self.shape.layers]

    def place_states(self, pool: StatePool) -> None:
        """Before the first step, where some layer has a state."""
        for layer, states in zip(cast(Sequence[DecoderLayer], self.layers), pool.layers, strict=True):
            if states is not None:
                cast(DeltaNet, layer.attention).place_states(states)

    def hidden_states(
        self, inputs: ForwardInputs, attention: StepBackend, drawn_rows: ForwardInputs | None = None
    ) -> tuple[Tensor, Tensor]:
        """(x, residual), both [T, N]; their sum goes into the final norm.

        With `drawn_rows` both are [Q, N], of inputs.last_tokens: of the others the last layer stores keys and values,
        which later steps read, and leaves out the rest.
        """
        self.token_adapters.slots = inputs.adapters
        residual = self.embed(inputs.token_ids)
        for first, values in inputs.embeds:
            residual[first : first + len(values)] = values[:, : self.shape.hidden]
        beside = None if self.token_embeds is None else self.token_embeds(inputs.token_ids, residual)
        ropes = self._ropes if inputs.mrope_positions is None else self._ropes_at(inputs.mrope_positions)
        x: Tensor | None = None
        layers, step = cast(Sequence[DecoderLayer], self.layers), inputs
        for i, (layer, rope) in enumerate(zip(layers, ropes, strict=True), 1):
            held = layer.store(x, residual, rope, attention, step)
            if drawn_rows is not None and i == len(layers):
                drawn = partial(self._ops.gather, ids=inputs.last_tokens, scale=1.0)
                residual = drawn(residual)
                if not len(drawn_rows.rows):
                    return residual, residual
                held, beside, step = drawn(held), None if beside is None else drawn(beside), drawn_rows
                self.token_adapters.slots = step.adapters
                attention.plan(step)
            x = layer.attend(held, rope, attention, step)
            x = layer.feed(x, residual, None if beside is None else self.part(beside, i - 1))
            if i <= self.shape.deepstack:
                self._add_features(residual, inputs, i)
        assert x is not None, "a model has at least one layer"
        return x, residual

    def _add_features(self, residual: Tensor, inputs: ForwardInputs, level: int) -> None:
        """WRITES residual [T, N], behind the layer number `level`, of which 1 is the first and none is the last."""
        start = level * self.shape.hidden
        for first, values in inputs.embeds:
            if values.shape[1] > start:
                residual[first : first + len(values)] += values[:, start : start + self.shape.hidden]

    def part(self, beside: Tensor, layer: int) -> Tensor:
        """[T, size] of [T, layers * size]"""
        size = beside.shape[1] // self.shape.num_layers
        return beside[:, layer * size : (layer + 1) * size]

    def final_states(self, x: Tensor, residual: Tensor, at: Tensor) -> Tensor:
        """x, residual [T, N]; at [Q] int64 indices into T -> [Q, N] after the final norm, what the head reads."""
        return self.norm.add(x.index_select(0, at), residual.index_select(0, at))

    def decode(self, inputs: ForwardInputs, attention: StepBackend, narrow: bool = False) -> Tensor:
        """Of rows with one new token each: [T, V] float32; if `narrow`, as the head makes them where nothing caps them.

        A GPU's draw reads half as many bytes then.
        """
        states = self.norm.add(*self.hidden_states(inputs, attention))
        if narrow and self.shape.logit_softcap is None:
            return (self.head or self.embed).narrow(states)
        return self.logits(states, inputs.adapters)

    def logits(self, states: Tensor, adapters: Tensor | None = None) -> Tensor:
        self.token_adapters.slots = adapters
        logits = (self.head or self.embed).wide(states)
        cap = self.shape.logit_softcap
        if cap is not None:
            self._ops.softcap(logits, cap)
        return logits
