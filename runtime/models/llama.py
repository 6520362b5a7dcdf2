"""Llama 1 to 3, CodeLlama and Vicuna (Touvron et al. 2023, Dubey et al. 2024): the shared decoder as it is."""

from dataclasses import replace

from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FamilyDefaults, plain_layers, read_decoder
from ramet.runtime.models.family import Family
from ramet.runtime.models.shape import ModelShape

DEFAULTS = FamilyDefaults(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=None,
    max_position_embeddings=2048,
)


def read_shape(config: ConfigObject) -> ModelShape:
    shape = read_decoder(config, DEFAULTS, plain_layers)
    bias = config.flag("attention_bias", False)
    return replace(shape, qkv_bias=bias, o_bias=bias, mlp_bias=config.flag("mlp_bias", False))


FAMILY = Family(read_shape)
