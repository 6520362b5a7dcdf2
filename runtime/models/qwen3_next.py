"""Qwen3-Next (Qwen Team 2025): three layers with a gated delta-net state to one that attends, and experts.

Layers that attend have a gate for each number that they return, turn a quarter of each head, and their norms multiply
by 1 + weight, as all others but the one behind a state.
"""

from collections.abc import Callable
from dataclasses import replace

from ramet.kernels.reference_delta import DeltaShape
from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.cache.pool import KVShape
from ramet.runtime.layers.experts import ExpertsShape
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FULL, FamilyDefaults, Sizes, read_decoder
from ramet.runtime.models.experts_config import TRAINING, read_dense_layers, read_shared_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import RopeDefaults, read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, Rows, Sources, WeightMap, WeightParts, expert_layer, usual_layer

LINEAR = "linear_attention"  # as `layer_types` spells it
HARMLESS = (*TRAINING, "mamba_ssm_dtype", "mlp_only_layers")  # states are float32 in any case
IGNORED = ("mtp.",)  # layers that draft tokens
DEFAULTS = FamilyDefaults(
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=48,
    num_attention_heads=16,
    num_key_value_heads=2,
    max_position_embeddings=32768,
    head_dim=256,
)


def read_hybrid(
    config: ConfigObject, defaults: FamilyDefaults, experts: Callable[[int], ExpertsShape | None]
) -> ModelShape:
    """`experts`: of a layer, by its number."""

    def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
        rope = read_rope(config, sizes.head_dim, sizes.context, RopeDefaults(partial=0.25))
        attends = LayerShape(LayerAttention(sizes.head_dim**-0.5), rope, qk_norm=True)
        remembers = replace(attends, qk_norm=False, kv=KVShape.of(0, 0), delta=read_delta(config))
        kinds = read_kinds(config, sizes.num_layers)
        return tuple(
            replace(attends if kind == FULL else remembers, experts=experts(i)) for i, kind in enumerate(kinds)
        )

    shape = read_decoder(config, defaults, read_layers)
    if shape.activation != "silu":
        raise config.error("hidden_act", "must be silu, which is what layers with a state apply")
    if not config.flag("attn_output_gate", True):
        raise config.error("attn_output_gate", "must be true: layers that attend have a gate for what they return")
    bias = config.flag("attention_bias", False)
    return replace(shape, qkv_bias=bias, o_bias=bias, wide_norms=True, norm_plus_one=True, gated_attention=True)


def read_kinds(config: ConfigObject, num_layers: int) -> tuple[str, ...]:
    """Of each layer: `layer_types`, or every `full_attention_interval`-th attends."""
    kinds, interval = config.get("layer_types"), config.count("full_attention_interval", 4)
    if kinds is None:
        kinds = [LINEAR if (i + 1) % interval else FULL for i in range(num_layers)]
    if not isinstance(kinds, list) or len(kinds) != num_layers or not all(each in (FULL, LINEAR) for each in kinds):
        raise config.error("layer_types", f"must be a list of {num_layers} times {FULL} or {LINEAR}")
    if FULL not in kinds:
        raise config.error("layer_types", f"must have {FULL} at least once")
    return tuple(kinds)


def read_delta(config: ConfigObject) -> DeltaShape:
    of = DeltaShape(
        key_heads=config.count("linear_num_key_heads", 16),
        value_heads=config.count("linear_num_value_heads", 32),
        key=config.count("linear_key_head_dim", 128),
        value=config.count("linear_value_head_dim", 128),
        taps=config.count("linear_conv_kernel_dim", 4, least=2),
    )
    if of.value_heads % of.key_heads:
        raise config.error("linear_num_value_heads", f"must be a multiple of linear_num_key_heads ({of.key_heads})")
    return of


def read_shape(config: ConfigObject) -> ModelShape:
    dense = read_dense_layers(config, config.count("num_hidden_layers", DEFAULTS.num_hidden_layers))
    of = read_shared_experts(config, (512, 512), num=512, per_token=10, normalise=None, usual=True)
    return read_hybrid(config, DEFAULTS, lambda layer: None if layer in dense else of)


def hybrid_layer(shape: ModelShape) -> dict[str, Sources]:
    """All but the projections of a layer with a state."""
    size = shape.head_dim
    usual = usual_layer(shape) if shape.experts is None else expert_layer(shape)
    return {
        **usual,
        "attention.qkv": (
            Rows("self_attn.q_proj", 2 * shape.query_size, WeightParts((size, size), (1, 0))),
            Rows("self_attn.k_proj", shape.kv_size),
            Rows("self_attn.v_proj", shape.kv_size),
        ),
        "attention.conv": "linear_attn.conv1d",
        "attention.decay": "linear_attn",
        "attention.norm": "linear_attn.norm",
        "attention.out": "linear_attn.out_proj",
    }


def delta_of(shape: ModelShape) -> DeltaShape | None:
    """Of the layers that have one."""
    return next((delta for delta in shape.deltas if delta is not None), None)


def weights(shape: ModelShape) -> WeightMap:
    """What a head of keys and its heads of values need is side by side in the projections."""
    layer, of = hybrid_layer(shape), delta_of(shape)
    if of is not None:
        shared = of.value_heads // of.key_heads
        parts = WeightParts((of.key, of.key, shared * of.value, shared * of.value), (0, 1, 2, 3))
        layer["attention.project"] = (Rows("linear_attn.in_proj_qkvz", of.inputs, parts),)
        gates = WeightParts((shared, shared), (0, 1))
        layer["attention.gates"] = (Rows("linear_attn.in_proj_ba", 2 * of.value_heads, gates),)
    return WeightMap(layer, TOP, ignored=IGNORED)


FAMILY = Family(read_shape, weights=weights, harmless=HARMLESS)
