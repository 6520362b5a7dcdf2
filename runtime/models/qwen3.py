"""Qwen3 (Yang et al. 2025): Qwen2 without its biases, and with a norm on every head of queries and keys."""

from dataclasses import replace

from ramet.runtime.models import qwen2
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import Sizes, read_decoder
from ramet.runtime.models.family import Family
from ramet.runtime.models.shape import LayerShape, ModelShape

DEFAULTS = replace(qwen2.DEFAULTS, head_dim=128)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    return tuple(replace(layer, qk_norm=True) for layer in qwen2.read_layers(config, sizes))


def read_shape(config: ConfigObject) -> ModelShape:
    shape = read_decoder(config, DEFAULTS, read_layers)
    bias = config.flag("attention_bias", False)
    return replace(shape, qkv_bias=bias, o_bias=bias)


FAMILY = Family(read_shape)
