"""Qwen3-MoE (Yang et al. 2025): Qwen3's block with experts in most layers."""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models import qwen2_moe
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import Sizes, read_decoder
from ramet.runtime.models.experts_config import TRAINING, read_dense_layers, read_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import expert_weights

DEFAULTS = replace(qwen2_moe.DEFAULTS, intermediate_size=6144, num_attention_heads=32, num_key_value_heads=4)
HARMLESS = (*TRAINING, "max_window_layers")


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    """A window, with `use_sliding_window`, is on every layer."""
    config.get("sliding_window")  # 0 in some files, where none is used
    window = config.optional_count("sliding_window", 4096) if config.flag("use_sliding_window", False) else None
    rope = read_rope(config, sizes.head_dim, sizes.context)
    of = read_experts(
        config, num=128, per_token=8, intermediate=config.count("moe_intermediate_size", 768), normalise=None
    )
    dense, attention = read_dense_layers(config, sizes.num_layers), LayerAttention(sizes.head_dim**-0.5, window)
    return tuple(
        LayerShape(attention, rope, qk_norm=True, experts=None if i in dense else of) for i in range(sizes.num_layers)
    )


def read_shape(config: ConfigObject) -> ModelShape:
    bias = config.flag("attention_bias", False)
    return replace(read_decoder(config, DEFAULTS, read_layers), qkv_bias=bias, o_bias=bias)


FAMILY = Family(read_shape, weights=expert_weights, harmless=HARMLESS)
