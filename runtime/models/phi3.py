"""Phi-3 and Phi-4 (Abdin et al. 2024): Llama's block with fused projections, and maybe a part of each head turned.

Of their longrope a sequence that outgrows the trained length has other keys, and is computed anew when it does.
"""

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FamilyDefaults, Sizes, read_decoder
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import KINDS, RopeDefaults, read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, WeightMap, usual_layer

DEFAULTS = FamilyDefaults(
    vocab_size=32064,
    hidden_size=3072,
    intermediate_size=8192,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=None,
    max_position_embeddings=4096,
    rms_norm_eps=1e-5,
)
ROPES = tuple(kind for kind in KINDS if kind != "yarn")
LONGROPES = ("longrope", "su", "yarn")  # which are one to the class
ROPE = RopeDefaults(partial=1.0, original=4096, kinds=ROPES, longropes=LONGROPES)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    rope = read_rope(config, sizes.head_dim, sizes.context, ROPE)
    attention = LayerAttention(sizes.head_dim**-0.5, config.optional_count("sliding_window", None))
    return (LayerShape(attention, rope),) * sizes.num_layers


def read_shape(config: ConfigObject) -> ModelShape:
    return read_decoder(config, DEFAULTS, read_layers)


def weights(shape: ModelShape) -> WeightMap:
    fused = {"attention.qkv": "self_attn.qkv_proj", "mlp.gate_up": "mlp.gate_up_proj"}
    return WeightMap({**usual_layer(shape), **fused}, TOP)


FAMILY = Family(read_shape, weights=weights)
