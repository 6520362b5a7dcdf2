"""Gemma 2 (Riviere et al. 2024): norms before and after attention and MLP, soft caps, a window on every other layer.

Norms multiply by 1 + weight, embeddings are scaled by sqrt(N), and the head is tied unless the file says otherwise.
T new tokens, N hidden size.
"""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FamilyDefaults, ReadLayers, Sizes, read_decoder, read_windows
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import read_rope
from ramet.runtime.models.sandwich import SandwichDecoder
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, WeightMap, usual_layer

DEFAULTS = FamilyDefaults(
    vocab_size=256000,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=26,
    num_attention_heads=8,
    num_key_value_heads=4,
    max_position_embeddings=8192,
    head_dim=256,
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    tie_word_embeddings=True,
)
HARMLESS = ("hidden_act", "sliding_window_size")  # its class reads hidden_activation and sliding_window instead


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    windows = read_windows(config, sizes.num_layers, 4096, lambda i: i % 2 == 0)
    scale = config.positive("query_pre_attn_scalar", 256) ** -0.5
    softcap = config.optional_positive("attn_logit_softcapping", 50.0)
    rope = read_rope(config, sizes.head_dim, sizes.context)
    return tuple(LayerShape(LayerAttention(scale, window, softcap), rope) for window in windows)


def read_gemma(
    config: ConfigObject, defaults: FamilyDefaults, layers: ReadLayers, usual_cap: float | None
) -> ModelShape:
    """What Gemma 2 and 3 read alike."""
    shape = read_decoder(config, defaults, layers)
    bias = config.flag("attention_bias", False)
    return replace(
        shape,
        qkv_bias=bias,
        o_bias=bias,
        wide_norms=True,
        norm_plus_one=True,
        embed_scale=shape.hidden**0.5,
        logit_softcap=config.optional_positive("final_logit_softcapping", usual_cap),
    )


def read_shape(config: ConfigObject) -> ModelShape:
    return read_gemma(config, DEFAULTS, read_layers, usual_cap=30.0)


def weights(shape: ModelShape) -> WeightMap:
    layer = {
        **usual_layer(shape),
        "attention_out_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
    }
    return WeightMap(layer, TOP)


FAMILY = Family(read_shape, SandwichDecoder, weights, HARMLESS)
