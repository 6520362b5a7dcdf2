"""The text decoder of Qwen3.5's models with experts (Qwen Team 2026): experts in every layer."""

from dataclasses import replace

from ramet.runtime.models import qwen3_5
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.experts_config import read_shared_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.qwen3_next import read_hybrid
from ramet.runtime.models.shape import ModelShape

DEFAULTS = replace(qwen3_5.DEFAULTS, hidden_size=2048, num_hidden_layers=40, num_key_value_heads=2)


def read_shape(config: ConfigObject) -> ModelShape:
    of = read_shared_experts(config, (512, 512), num=256, per_token=8, normalise=True)
    return read_hybrid(config, DEFAULTS, lambda _: of)


FAMILY = Family(read_shape, weights=qwen3_5.weights, harmless=qwen3_5.HARMLESS)
