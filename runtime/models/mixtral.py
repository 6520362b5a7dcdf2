"""Mixtral (Jiang et al. 2024): Mistral's block with experts in every layer, two for each token."""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models import mistral
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import Sizes, read_decoder
from ramet.runtime.models.experts_config import TRAINING, read_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import RopeDefaults, read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, Rows, WeightMap, usual_layer

DEFAULTS = replace(mistral.DEFAULTS, rms_norm_eps=1e-5)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    rope = read_rope(config, sizes.head_dim, sizes.context, RopeDefaults(1e6))
    attention = LayerAttention(sizes.head_dim**-0.5, config.optional_count("sliding_window", None))
    of = read_experts(config, num=8, per_token=2, intermediate=config.count("intermediate_size", 14336), normalise=True)
    return (LayerShape(attention, rope, experts=of),) * sizes.num_layers


def read_shape(config: ConfigObject) -> ModelShape:
    return read_decoder(config, DEFAULTS, read_layers)


def weights(shape: ModelShape) -> WeightMap:
    of = "block_sparse_moe.experts.*"
    layer = {
        **usual_layer(shape),
        "mlp.router": "block_sparse_moe.gate",
        "mlp.gate_up.layers.*": (Rows(f"{of}.w1", shape.intermediate), Rows(f"{of}.w3", shape.intermediate)),
        "mlp.down.layers.*": f"{of}.w2",
    }
    return WeightMap(layer, TOP)


FAMILY = Family(read_shape, weights=weights, harmless=TRAINING)
