"""Qwen2 and Qwen2.5 (Yang et al. 2024): Llama's block with biases on queries, keys and values, always."""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.layers.rope import RopeShape
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FamilyDefaults, Sizes, read_asked_windows, read_decoder
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape

DEFAULTS = FamilyDefaults(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=22016,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    max_position_embeddings=32768,
)


def read_layers(
    config: ConfigObject, sizes: Sizes, rope: RopeShape | None = None, usual_full: int = 28
) -> tuple[LayerShape, ...]:
    """A window only with `use_sliding_window`, and then on the layers from `max_window_layers` on."""
    num_full = config.count("max_window_layers", usual_full, least=0)
    has_none = config.has("sliding_window") and config.get("sliding_window") is None
    windows = read_asked_windows(config, sizes.num_layers, lambda i: i >= num_full and not has_none)
    rope = rope or read_rope(config, sizes.head_dim, sizes.context)
    scale = sizes.head_dim**-0.5
    return tuple(LayerShape(LayerAttention(scale, window), rope) for window in windows)


def read_shape(config: ConfigObject) -> ModelShape:
    shape = read_decoder(config, DEFAULTS, read_layers)
    if not config.flag("attention_bias", True):
        raise config.error("attention_bias", "must be true or absent: a Qwen2 has biases on queries, keys and values")
    return replace(shape, qkv_bias=True)


FAMILY = Family(read_shape)
