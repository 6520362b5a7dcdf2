"""The text decoder of Qwen3-VL (Qwen Team 2025): Qwen3's, whose rope turns by time, height and width in turns of pairs,
and whose first layers get more features of a picture each (DeepStack: Meng et al. 2024).

It is published beside a vision tower: the decoder is in text_config and behind a prefix of the weights.
"""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models import qwen2
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import Sizes, read_decoder
from ramet.runtime.models.family import Family
from ramet.runtime.models.qwen2_vl import HARMLESS, read_axes_rope, read_composite, weights
from ramet.runtime.models.shape import LayerShape, ModelShape

DEFAULTS = replace(qwen2.DEFAULTS, max_position_embeddings=128000, head_dim=128)
THETA, SECTIONS = 5e5, (24, 20, 20)
LEVELS = [8, 16, 24]  # layers of the tower whose outputs are the features of the first layers here


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    rope = replace(read_axes_rope(config, sizes, THETA, SECTIONS), interleaved=True)
    return (LayerShape(LayerAttention(sizes.head_dim**-0.5), rope, qk_norm=True),) * sizes.num_layers


def read_text(config: ConfigObject) -> ModelShape:
    bias = config.flag("attention_bias", False)
    return replace(read_decoder(config, DEFAULTS, read_layers), qkv_bias=bias, o_bias=bias)


def read_shape(config: ConfigObject) -> ModelShape:
    shape = read_composite(config, read_text)
    return replace(shape, deepstack=_levels(config, shape))


def _levels(config: ConfigObject, shape: ModelShape) -> int:
    vision = config.get("vision_config")
    levels = vision.get("deepstack_visual_indexes", LEVELS) if isinstance(vision, dict) else LEVELS
    if not isinstance(levels, list) or len(levels) >= shape.num_layers:
        raise config.error("vision_config", f"must have fewer deepstack_visual_indexes than {shape.num_layers} layers")
    return len(levels)


FAMILY = Family(read_shape, weights=weights, harmless=HARMLESS)
