"""GLM-4 9B as it was first published (GLM Team 2024): Llama's block with biases on queries, keys and values.

Half of each head is turned, in pairs of neighbours. Loading puts the two of a pair as far apart as other families have
them.
"""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FamilyDefaults, Sizes, read_decoder
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import RopeDefaults, read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, Pairs, Rows, Sources, WeightMap, usual_layer

DEFAULTS = FamilyDefaults(
    vocab_size=151552,
    hidden_size=4096,
    intermediate_size=13696,
    num_hidden_layers=40,
    num_attention_heads=32,
    num_key_value_heads=2,
    max_position_embeddings=131072,
    head_dim=128,
    rms_norm_eps=1.5625e-7,
)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    rope = read_rope(config, sizes.head_dim, sizes.context, RopeDefaults(partial=0.5))
    return (LayerShape(LayerAttention(sizes.head_dim**-0.5), rope),) * sizes.num_layers


def read_shape(config: ConfigObject) -> ModelShape:
    return replace(read_decoder(config, DEFAULTS, read_layers), qkv_bias=config.flag("attention_bias", True))


def layer_of(shape: ModelShape) -> dict[str, Sources]:
    pairs = Pairs(shape.head_dim, shape.layers[0].rope.rotary_dim)
    return {
        **usual_layer(shape),
        "attention.qkv": (
            Rows("self_attn.q_proj", shape.query_size, pairs),
            Rows("self_attn.k_proj", shape.kv_size, pairs),
            Rows("self_attn.v_proj", shape.kv_size),
        ),
        "mlp.gate_up": "mlp.gate_up_proj",
    }


def weights(shape: ModelShape) -> WeightMap:
    return WeightMap(layer_of(shape), TOP)


FAMILY = Family(read_shape, weights=weights)
