"""The numbers of a model as its family read them. Knows no file and no tensor."""

from dataclasses import dataclass
from functools import cached_property

from ramet.kernels.reference_delta import DeltaShape
from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.attention.latent import LatentSizes
from ramet.runtime.cache.pool import KVShape
from ramet.runtime.layers.experts import ExpertsShape
from ramet.runtime.layers.rope import RopeShape


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What may differ from layer to layer."""

    attention: LayerAttention
    rope: RopeShape
    qk_norm: bool = False  # queries and keys are normed head by head before they are rotated
    experts: ExpertsShape | None = None
    kv: KVShape | None = None  # None: the model's heads and their size
    values_are_keys: bool = False  # the same projection makes both
    v_norm: bool = False  # values are normed head by head, without a weight
    intermediate: int | None = None  # None: the model's
    delta: DeltaShape | None = None  # of a layer with a state in the place of attention


@dataclass(frozen=True, slots=True)
class CheckpointQuantization:
    """Of weights that a checkpoint has in fewer bits."""

    method: str  # as config.json names it
    kept: str | None  # the form that linear layers keep, as --quantization names it; None: plain, as they are widened
    group_size: int | None = None  # inputs that share a scale; None: all of an output
    is_symmetric: bool = False  # the zero is 8
    zeros_less_one: bool = False  # what is stored for a zero is one less
    bits: tuple[int, ...] = (4,)  # of whole numbers that are packed
    block: tuple[int, int] | None = None  # outputs and inputs that share a scale
    weight_only: bool = True  # inputs are not rounded, where the kernel leaves it open


@dataclass(frozen=True, slots=True)
class LayerEmbeds:
    """Of tokens, for each layer (Gemma 3n; Gemma 4)."""

    vocab_size: int
    size: int  # of those of one layer


@dataclass(frozen=True)
class ModelShape:
    architecture: str
    vocab_size: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    context_length: int
    rms_eps: float
    activation: str
    layers: tuple[LayerShape, ...]
    tied_head: bool
    dtype: str
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    gated_attention: bool = False  # each number that attention returns is multiplied by a sigmoid of its own
    wide_norms: bool = False  # norms multiply in float32, and round what comes of it
    norm_plus_one: bool = False  # by 1 + weight
    embed_scale: float = 1.0  # embeddings are multiplied by this, rounded to their dtype
    logit_softcap: float | None = None  # logits x become softcap * tanh(x / softcap)
    latent: LatentSizes | None = None  # None: attention with keys and values of heads
    quantization: CheckpointQuantization | None = None
    composite: str = ""  # the class that it is published in beside towers; empty: it is on its own
    of_transformers: str = ""  # config.json, of a model whose modules are transformers'; empty: they are our own
    layer_embeds: LayerEmbeds | None = None
    deepstack: int = 0  # first layers that more features of media are added behind, `hidden` numbers each
    generates: bool = True  # it has a head for tokens; without one `tied_head` is True, and its logits mean nothing
    num_labels: int = 0  # of a classifier, or rewards

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def experts(self) -> ExpertsShape | None:
        """Of the layers that have some."""
        return next((layer.experts for layer in self.layers if layer.experts is not None), None)

    def longrope_limit(self, num_positions: int) -> int | None:
        """Tokens of the longest sequence whose keys are none of a longer one's; None: all have the same keys."""
        found = {layer.rope.longrope_limit(num_positions) for layer in self.layers}
        assert len(found) == 1, f"layers change their keys at {found}"
        return found.pop()

    @property
    def sparse(self) -> tuple[int, ...]:
        """Numbers of the layers with experts."""
        return tuple(i for i, layer in enumerate(self.layers) if layer.experts is not None)

    @property
    def widest(self) -> int:
        """Intermediate numbers of a token, at most."""
        of = self.experts
        dense = max(layer.intermediate or self.intermediate for layer in self.layers)
        return dense if of is None else max(dense, of.num_of_a_token)

    @property
    def widest_qkv(self) -> int:
        """Numbers of a token's queries, keys and values in a layer, at most."""
        return max((self.heads + of.heads) * of.key + of.heads * of.value for of in self.kv_shapes)

    @property
    def projected(self) -> int:
        """Numbers that a layer's first projection makes of a token, at most."""
        gates = self.query_size if self.gated_attention else 0
        return max(
            gates + self.widest_qkv,
            *(delta.inputs + 2 * delta.value_heads for delta in self.deltas if delta is not None),
            0,
        )

    @cached_property
    def deltas(self) -> tuple[DeltaShape | None, ...]:
        """Of each layer; None: it attends."""
        return tuple(layer.delta for layer in self.layers)

    @cached_property
    def has_states(self) -> bool:
        """Whether some layer has one; steps ask it."""
        return any(delta is not None for delta in self.deltas)

    @property
    def query_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        """Of each layer."""
        usual = KVShape.of(self.kv_heads, self.head_dim)
        return tuple(layer.kv or usual for layer in self.layers)

    @property
    def attended_size(self) -> int:
        """Numbers of a token between the projections of attention."""
        of = self.latent
        if of is None:
            return self.projected
        return (of.query_latent or 0) + of.key + self.heads * (of.query + 2 * of.latent + of.value)

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim
