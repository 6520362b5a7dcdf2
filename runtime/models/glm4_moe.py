"""GLM-4.5 and 4.6 (GLM Team 2025): experts routed as DeepSeek-V3 does, half of each head turned.

Layers that predict several tokens at once are left out.
"""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models import glm
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import Sizes, read_decoder
from ramet.runtime.models.experts_config import TRAINING, read_biased_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import RopeDefaults, read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, WeightMap, expert_layer, usual_layer

DEFAULTS = replace(
    glm.DEFAULTS,
    intermediate_size=10944,
    num_hidden_layers=46,
    num_attention_heads=96,
    num_key_value_heads=8,
    rms_norm_eps=1e-5,
)
HARMLESS = (*TRAINING, "num_mtp_layers", "num_nextn_predict_layers")


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    rope = read_rope(config, sizes.head_dim, sizes.context, RopeDefaults(partial=0.5))
    of = read_biased_experts(
        config, num=128, per_token=8, intermediate=config.count("moe_intermediate_size", 1408), groups=1,
        kept_groups=1, scale=1.0,
    )  # fmt: skip
    dense, normed = config.count("first_k_dense_replace", 1, least=0), config.flag("use_qk_norm", False)
    attention = LayerAttention(sizes.head_dim**-0.5)
    return tuple(
        LayerShape(attention, rope, qk_norm=normed, experts=None if i < dense else of) for i in range(sizes.num_layers)
    )


def read_shape(config: ConfigObject) -> ModelShape:
    return replace(read_decoder(config, DEFAULTS, read_layers), qkv_bias=config.flag("attention_bias", False))


def weights(shape: ModelShape) -> WeightMap:
    layer = expert_layer(shape, "shared_experts") if shape.experts else usual_layer(shape)
    return WeightMap(layer, TOP, ignored=(f"model.layers.{shape.num_layers}.",))


FAMILY = Family(read_shape, weights=weights, harmless=HARMLESS)
