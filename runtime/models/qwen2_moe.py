"""Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024): Qwen2's block with experts, and one that every token has."""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models import qwen2
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FULL, SLIDING, Sizes, check_window, read_decoder, read_layer_types
from ramet.runtime.models.experts_config import TRAINING, read_dense_layers, read_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import expert_weights

DEFAULTS = replace(
    qwen2.DEFAULTS,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=24,
    num_attention_heads=16,
    num_key_value_heads=16,
)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    """A window only with `use_sliding_window`, and then on every other layer before `max_window_layers`."""
    windowed, last = config.flag("use_sliding_window", False), config.count("max_window_layers", 28, least=0)
    config.get("sliding_window")  # 0 in files of newer transformers, where none is used
    window = config.optional_count("sliding_window", 4096) if windowed else None
    types = read_layer_types(
        config, sizes.num_layers, lambda i: SLIDING if windowed and i % 2 == 0 and i < last else FULL
    )
    if not windowed and SLIDING in types:
        raise config.error("layer_types", f"which needs use_sliding_window for {SLIDING}")
    check_window(config, window, types)
    rope, scale = read_rope(config, sizes.head_dim, sizes.context), sizes.head_dim**-0.5
    of = replace(
        read_experts(
            config, num=60, per_token=4, intermediate=config.count("moe_intermediate_size", 1408), normalise=None
        ),
        shared_intermediate=config.count("shared_expert_intermediate_size", 5632),
        shared_gate=True,
    )
    dense = read_dense_layers(config, sizes.num_layers)
    return tuple(
        LayerShape(LayerAttention(scale, window if kind == SLIDING else None), rope, experts=None if i in dense else of)
        for i, kind in enumerate(types)
    )


def read_shape(config: ConfigObject) -> ModelShape:
    return replace(read_decoder(config, DEFAULTS, read_layers), qkv_bias=config.flag("qkv_bias", True))


FAMILY = Family(read_shape, weights=expert_weights, harmless=TRAINING)
