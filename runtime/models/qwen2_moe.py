"""Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024): Qwen2's block with experts, and one that every token has."""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models import qwen2
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import Sizes, read_asked_windows, read_decoder
from ramet.runtime.models.experts_config import TRAINING, read_dense_layers, read_shared_experts
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
    last = config.count("max_window_layers", 28, least=0)
    windows = read_asked_windows(config, sizes.num_layers, lambda i: i % 2 == 0 and i < last)
    rope, scale = read_rope(config, sizes.head_dim, sizes.context), sizes.head_dim**-0.5
    of = read_shared_experts(config, (1408, 5632), num=60, per_token=4, normalise=None)
    dense = read_dense_layers(config, sizes.num_layers)
    return tuple(
        LayerShape(LayerAttention(scale, window), rope, experts=None if i in dense else of)
        for i, window in enumerate(windows)
    )


def read_shape(config: ConfigObject) -> ModelShape:
    return replace(read_decoder(config, DEFAULTS, read_layers), qkv_bias=config.flag("qkv_bias", True))


FAMILY = Family(read_shape, weights=expert_weights, harmless=TRAINING)
