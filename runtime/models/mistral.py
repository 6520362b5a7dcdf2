"""Mistral (Jiang et al. 2023): Llama's block with a sliding window on every layer, unless the file says null."""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models import llama
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FULL, SLIDING, Sizes, read_decoder, read_layer_types
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape

DEFAULTS = replace(llama.DEFAULTS, intermediate_size=14336, num_key_value_heads=8, max_position_embeddings=131072)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    window = config.optional_count("sliding_window", 4096)
    same = FULL if window is None else SLIDING
    if set(read_layer_types(config, sizes.num_layers, lambda _: window is not None)) != {same}:
        raise config.error("layer_types", f"must be {same} for every layer: a Mistral's layers are all alike")
    rope = read_rope(config, sizes.head_dim, sizes.context)
    return (LayerShape(LayerAttention(sizes.head_dim**-0.5, window), rope),) * sizes.num_layers


def read_shape(config: ConfigObject) -> ModelShape:
    return read_decoder(config, DEFAULTS, read_layers)


FAMILY = Family(read_shape)
