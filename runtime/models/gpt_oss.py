"""GPT-OSS (OpenAI 2025): experts in every layer, a window on every other one, and a sink for each head.

A sink is a score that has no value: heads may look at nothing. Gates and ups of experts are clamped. Their weights are
stacked in the checkpoint, inputs before outputs, rows of gate and up in turns; as published they are in MXFP4, which is
widened when it is read.
"""

from dataclasses import replace

from ramet.kernels.reference_experts import RouteRule
from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.layers.experts import Clamp, ExpertsShape
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FamilyDefaults, Sizes, read_decoder, read_windows
from ramet.runtime.models.experts_config import TRAINING, read_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import RopeDefaults, read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, Rows, Stack, WeightMap, usual_layer

DEFAULTS = FamilyDefaults(
    vocab_size=201088,
    hidden_size=2880,
    intermediate_size=2880,
    num_hidden_layers=36,
    num_attention_heads=64,
    num_key_value_heads=8,
    max_position_embeddings=131072,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope_extends=False,
)
ROPE = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
HARMLESS = (*TRAINING, "experts_per_token", "initial_context_length")


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    windows = read_windows(config, sizes.num_layers, 128, lambda i: i % 2 == 0)
    rope = read_rope(config, sizes.head_dim, sizes.context, RopeDefaults(150000.0, parameters=ROPE))
    of = read_clamped(config)
    scale = sizes.head_dim**-0.5
    return tuple(LayerShape(LayerAttention(scale, window, sinks=True), rope, experts=of) for window in windows)


def read_clamped(config: ConfigObject) -> ExpertsShape:
    intermediate = config.count("intermediate_size", DEFAULTS.intermediate_size)
    of = read_experts(config, num=128, per_token=4, intermediate=intermediate, normalise=True)
    clamp = Clamp(config.positive("swiglu_alpha", 1.702), config.positive("swiglu_limit", 7.0))
    # the softmax of the chosen scores is that of all of them, divided by the sum of the chosen
    return replace(of, rule=RouteRule(of.rule.per_token, normalise=True), bias=True, clamp=clamp)


def read_shape(config: ConfigObject) -> ModelShape:
    bias = config.flag("attention_bias", True)
    return replace(read_decoder(config, DEFAULTS, read_layers), qkv_bias=bias, o_bias=bias, wide_norms=True)


def weights(shape: ModelShape) -> WeightMap:
    assert shape.experts is not None, "every layer has experts"
    of, gate, up, down = "mlp.experts", "mlp.experts.*.gate", "mlp.experts.*.up", "mlp.experts.*.down"
    layer = {
        **usual_layer(shape),
        "attention": "self_attn",
        "mlp.router": "mlp.router",
        "mlp.gate_up.layers.*": (Rows(gate, shape.experts.intermediate), Rows(up, shape.experts.intermediate)),
        "mlp.down.layers.*": down,
    }
    stacks = {
        f"{of}.gate_up_proj": Stack((f"{gate}.weight", f"{up}.weight"), turned=True, interleaved=True),
        f"{of}.gate_up_proj_bias": Stack((f"{gate}.bias", f"{up}.bias"), interleaved=True),
        f"{of}.down_proj": Stack((f"{down}.weight",), turned=True),
        f"{of}.down_proj_bias": Stack((f"{down}.bias",)),
    }
    return WeightMap(layer, TOP, stacks=stacks)


FAMILY = Family(read_shape, weights=weights, harmless=HARMLESS)
