"""Mistral (Jiang et al. 2023): Llama's block with a sliding window on every layer, unless the file says null."""

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FULL, SLIDING, FamilyDefaults, Sizes, read_decoder, read_layer_types
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape

DEFAULTS = FamilyDefaults(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=131072,
)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    window = config.optional_count("sliding_window", 4096)
    same = FULL if window is None else SLIDING
    if set(read_layer_types(config, sizes.num_layers, lambda i: same)) != {same}:
        raise config.error("layer_types", f"must be {same} for every layer: a Mistral's layers are all alike")
    rope = read_rope(config, sizes.head_dim, sizes.context)
    return (LayerShape(LayerAttention(sizes.head_dim**-0.5, window), rope),) * sizes.num_layers


def read_shape(config: ConfigObject) -> ModelShape:
    return read_decoder(config, DEFAULTS, read_layers)


FAMILY = Family(read_shape)
