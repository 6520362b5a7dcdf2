"""What each family understands of a config.json: class defaults, forms on the hub, and what is refused by name."""

import json
import math
from dataclasses import astuple, replace
from typing import Any

import pytest
import torch
from hub_configs import HUB

from ramet.kernels.reference_experts import SIGMOID, RouteRule
from ramet.runtime.attention.latent import LatentSizes
from ramet.runtime.cache.pool import KVShape, bytes_per_token
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.rope import inverse_frequencies
from ramet.runtime.models.composite import TEXTS
from ramet.runtime.models.experts_config import COUNTS
from ramet.runtime.models.registry import FAMILIES, SUPPORTED, parse_shape
from ramet.runtime.models.shape import LayerEmbeds, ModelShape

TYPES = {  # architecture -> model_type
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "GlmForCausalLM": "glm",
    "Glm4ForCausalLM": "glm4",
    "Glm4MoeForCausalLM": "glm4_moe",
    "GptOssForCausalLM": "gpt_oss",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Phi3ForCausalLM": "phi3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "Qwen3_5ForCausalLM": "qwen3_5_text",
    "Qwen3_5MoeForCausalLM": "qwen3_5_moe_text",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma4ForCausalLM": "gemma4_text",
}
COMPOSITES = {
    "Gemma3ForConditionalGeneration": "gemma3",
    "Gemma4ForConditionalGeneration": "gemma4",
    "Idefics3ForConditionalGeneration": "idefics3",
    "InternVLForConditionalGeneration": "internvl",
    "LlavaForConditionalGeneration": "llava",
    "LlavaNextForConditionalGeneration": "llava_next",
    "LlavaOnevisionForConditionalGeneration": "llava_onevision",
    "Qwen2AudioForConditionalGeneration": "qwen2_audio",
    "SmolVLMForConditionalGeneration": "smolvlm",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe",
}
BESIDE_TOWERS = {  # always: these decoders have no class of their own
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
}
SLIDING, FULL = "sliding_attention", "full_attention"
HYBRID = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
NORMED = ("qwen3", "qwen3_vl_text", "qwen3_moe", "gemma3_text", "gemma4_text", *HYBRID)
WINDOWED = {"sliding_attention", "mistral", "mixtral", "phi3"}
GEMMA3_ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
Config = dict[str, Any]


def least(architecture: str) -> Config:
    """Two classes need what every file of theirs has: GLM-4.5's divides 4,096 by 96 where heads have no size."""
    needed = {"Glm4MoeForCausalLM": {"head_dim": 128}, "DeepseekV2ForCausalLM": {"num_experts_per_tok": 6}}
    return {"architectures": [architecture], **needed.get(architecture, {})}


def theirs_of(config: Config) -> Any:
    from transformers import AutoConfig

    values = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    whole = AutoConfig.for_model({**TYPES, **COMPOSITES, **BESIDE_TOWERS}[config["architectures"][0]], **values)
    theirs = getattr(whole, "text_config", whole)
    theirs.tie_word_embeddings = getattr(whole, "tie_word_embeddings", False)  # a Qwen2-Audio has no such key
    theirs.allow_global_per_layer_attribute_access = True  # what a Gemma 4 says of its layers with windows
    return theirs


def windows(theirs: Any) -> list[int | None]:
    types = getattr(theirs, "layer_types", None) or [theirs.model_type] * theirs.num_hidden_layers
    return [theirs.sliding_window if kind in WINDOWED else None for kind in types]


def thetas(theirs: Any) -> list[float]:
    ropes = theirs.rope_parameters
    return [ropes.get(kind, ropes)["rope_theta"] for kind in getattr(theirs, "layer_types", None) or windows(theirs)]


def check(shape: ModelShape, theirs: Any) -> None:
    """Every number that both know is the same."""
    heads = theirs.num_attention_heads
    head_dim = getattr(theirs, "qk_head_dim", None) or getattr(theirs, "head_dim", None) or theirs.hidden_size // heads
    is_gemma4 = theirs.model_type == "gemma4_text"
    scalar = 1.0 if is_gemma4 else getattr(theirs, "query_pre_attn_scalar", head_dim)
    softcap = theirs.attn_logit_softcapping if theirs.model_type == "gemma2" else None
    assert (shape.vocab_size, shape.hidden) == (theirs.vocab_size, theirs.hidden_size)
    assert shape.intermediate == getattr(theirs, "intermediate_size", shape.intermediate)  # all layers have experts
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (heads, theirs.num_key_value_heads, head_dim)
    assert shape.rms_eps == theirs.rms_norm_eps
    assert shape.activation == (theirs.hidden_activation if "gemma" in theirs.model_type else theirs.hidden_act)
    assert shape.tied_head == theirs.tie_word_embeddings
    assert shape.logit_softcap == getattr(theirs, "final_logit_softcapping", None)
    assert [layer.attention.window for layer in shape.layers] == windows(theirs)
    assert {layer.attention.scale for layer in shape.layers} == {scalar**-0.5 * score_factor(theirs)}
    assert {layer.attention.softcap for layer in shape.layers} == {softcap}
    assert [layer.rope.theta for layer in shape.layers] == thetas(theirs)
    part = (getattr(theirs, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0)
    if "gemma" not in theirs.model_type:
        turned = getattr(theirs, "qk_rope_head_dim", int(head_dim * part))
        assert {layer.rope.rotary_dim for layer in shape.layers} == {turned}
    assert {layer.qk_norm for layer in shape.layers if layer.delta is None} == {
        theirs.model_type in NORMED or getattr(theirs, "use_qk_norm", False)
    }
    check_latents(shape, theirs)
    check_experts(shape, theirs)
    check_states(shape, theirs)
    if is_gemma4:
        check_kept(shape, theirs)


def check_kept(shape: ModelShape, theirs: Any) -> None:
    """What each layer keeps of a token, and whose keys it reads."""
    modes = theirs.kv_sharing_modes
    for i, (layer, kept, mode) in enumerate(zip(shape.layers, shape.kv_shapes, modes, strict=True)):
        own = theirs.per_layer_config[i]
        assert kept == KVShape.of(0 if mode == "reuse" else own.num_key_value_heads, own.head_dim)
        assert (layer.attention.keys_of is not None) == (mode == "reuse")
        if layer.attention.keys_of is not None:
            source = shape.layers[layer.attention.keys_of]
            assert modes[layer.attention.keys_of] == "store" and source.attention.window == layer.attention.window
        wide = theirs.use_double_wide_mlp and mode == "reuse"
        assert layer.intermediate == (2 * theirs.intermediate_size if wide else None)
        assert layer.values_are_keys == (theirs.attention_k_eq_v and theirs.layer_types[i] == FULL)
    size = theirs.hidden_size_per_layer_input
    assert shape.layer_embeds == (LayerEmbeds(theirs.vocab_size_per_layer_input, size) if size else None)


def score_factor(theirs: Any) -> float:
    """That of yarn in a model with latents."""
    rope = theirs.rope_parameters
    if not hasattr(theirs, "kv_lora_rank") or rope["rope_type"] == "default":
        return 1.0
    mscale: float = 0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1.0
    return mscale**2


def check_latents(shape: ModelShape, theirs: Any) -> None:
    """One latent and one key that turns are cached of a token, whatever the heads."""
    latent = getattr(theirs, "kv_lora_rank", None)
    if latent is None:
        assert shape.latent is None
        return
    turned = theirs.qk_rope_head_dim
    sizes = LatentSizes(latent, turned, theirs.qk_nope_head_dim, theirs.v_head_dim, theirs.q_lora_rank)
    assert shape.latent == sizes and set(shape.kv_shapes) == {KVShape(1, latent + turned, 0)}
    assert {layer.attention.value_size for layer in shape.layers} == {latent}
    assert bytes_per_token(shape.kv_shapes, torch.bfloat16) == 2 * (latent + turned) * theirs.num_hidden_layers


def check_states(shape: ModelShape, theirs: Any) -> None:
    kinds = theirs.layer_types if theirs.model_type in HYBRID else ["full_attention"] * theirs.num_hidden_layers
    assert [layer.delta is not None for layer in shape.layers] == [kind == "linear_attention" for kind in kinds]
    if not shape.has_states:
        return
    assert [layer.kv is not None and not layer.kv.heads for layer in shape.layers] == [
        layer.delta is not None for layer in shape.layers
    ]
    for of in filter(None, shape.deltas):
        assert astuple(of) == (
            theirs.linear_num_key_heads, theirs.linear_num_value_heads, theirs.linear_key_head_dim,
            theirs.linear_value_head_dim, theirs.linear_conv_kernel_dim,
        )  # fmt: skip


def check_experts(shape: ModelShape, theirs: Any) -> None:
    num = next((n for name in COUNTS if (n := getattr(theirs, name, None)) is not None), None)
    if num is None:
        assert shape.experts is None
        return
    dense, step = getattr(theirs, "mlp_only_layers", []), getattr(theirs, "decoder_sparse_step", 1)
    dense = dense or range(getattr(theirs, "first_k_dense_replace", 0))
    assert [layer.experts is None for layer in shape.layers] == [
        i in dense or (i + 1) % step != 0 for i in range(theirs.num_hidden_layers)
    ]
    of, normalise = shape.experts, getattr(theirs, "norm_topk_prob", True)  # a Mixtral has no key for it
    chosen = getattr(theirs, "top_k_experts", None) or theirs.num_experts_per_tok
    sharpness = theirs.hidden_size**-0.5 if theirs.model_type == "gemma4_text" else 1.0
    rule = RouteRule(chosen, normalise, sharpness=sharpness)
    if theirs.model_type == "deepseek_v2":
        rule = replace(rule, normalise=False, scale=theirs.routed_scaling_factor)
        if theirs.topk_method != "greedy":
            rule = replace(rule, groups=theirs.n_group, kept_groups=theirs.topk_group, of_group=1)
    elif (groups := getattr(theirs, "n_group", None)) is not None:
        rule = RouteRule(*astuple(rule)[:2], SIGMOID, groups, theirs.topk_group, scale=theirs.routed_scaling_factor)
    assert of is not None and of.rule == rule and of.choice_bias == (rule.scores == SIGMOID)
    wide = getattr(theirs, "moe_intermediate_size", None) or theirs.intermediate_size
    gated = getattr(theirs, "shared_expert_intermediate_size", 0)
    shared = gated or getattr(theirs, "n_shared_experts", 0) * wide
    assert (of.num, of.intermediate, of.shared_intermediate, of.shared_gate) == (num, wide, shared, gated > 0)


@pytest.mark.parametrize("architecture", TYPES)
def test_absent_keys_have_the_defaults_of_the_familys_class(architecture: str) -> None:
    config: Config = least(architecture)
    theirs = theirs_of(config)
    check(parse_shape(config), theirs)
    assert parse_shape(config).context_length == theirs.max_position_embeddings


@pytest.mark.parametrize("name", HUB)
def test_published_files_are_understood(name: str) -> None:
    check(parse_shape(HUB[name]), theirs_of(HUB[name]))


def test_published_files_cover_every_architecture() -> None:
    assert {config["architectures"][0] for config in HUB.values()} == set(SUPPORTED)


@pytest.mark.parametrize("architecture", TYPES)
def test_what_a_newer_transformers_writes_is_understood(architecture: str) -> None:
    config = json.loads(theirs_of(least(architecture)).to_json_string(use_diff=False)) | least(architecture)
    config.pop("allow_global_per_layer_attribute_access")
    assert config["rope_parameters"]
    assert parse_shape(config) == parse_shape({**least(architecture), "dtype": config.get("dtype")})


def test_what_the_published_files_say() -> None:
    shapes = {name: parse_shape(config) for name, config in HUB.items()}
    assert shapes["vicuna-7b-v1.5-16k"].context_length == 16384
    assert shapes["gemma-3-4b"].context_length == 131072  # stretched already
    assert {name for name, shape in shapes.items() if shape.qkv_bias} == {
        "Qwen2.5-7B", "Qwen1.5-MoE-A2.7B", "glm-4-9b-hf", "GLM-4.5-Air", "gpt-oss-20b", "llava-onevision-qwen2-0.5b",
        "InternVL3-1B", "Qwen2-Audio-7B", "Qwen2-VL-7B", "Qwen2.5-VL-7B",
    }  # fmt: skip
    assert [name for name, shape in shapes.items() if shape.o_bias or shape.mlp_bias] == ["gpt-oss-20b"]
    assert shapes["gpt-oss-20b"].context_length == 131072
    assert {layer.attention.sinks for layer in shapes["gpt-oss-20b"].layers} == {True}
    plus_one = {name for name in HUB if name.startswith(("gemma-2", "gemma-3", "Qwen3-Next", "Qwen3.5"))}
    assert {name for name, shape in shapes.items() if shape.norm_plus_one} == plus_one
    assert {name for name, shape in shapes.items() if shape.wide_norms} == plus_one | {
        name for name in HUB if name.startswith(("gemma-4", "gpt-oss"))
    }
    assert {name for name, shape in shapes.items() if shape.has_states} == {
        "Qwen3-Next-80B-A3B", "Qwen3.5-text", "Qwen3.5-27B", "Qwen3.5-35B-A3B-text", "Qwen3.5-35B-A3B",
    }  # fmt: skip
    turning = {name: shape.layers[0].rope for name, shape in shapes.items() if shape.layers[0].rope.sections}
    assert {name: (rope.sections, rope.interleaved) for name, rope in turning.items()} == {
        "Qwen2-VL-7B": ((16, 24, 24), False),
        "Qwen2.5-VL-7B": ((16, 24, 24), False),
        "Qwen3-VL-8B": ((24, 20, 20), True),
    }
    assert {name: shape.deepstack for name, shape in shapes.items() if shape.deepstack} == {"Qwen3-VL-8B": 3}
    assert shapes["gemma-3-4b"].dtype == "bfloat16" and shapes["gemma-3-4b"].tied_head


ROPES: dict[str, tuple[str, Config]] = {
    "older": ("llama", {"rope_theta": 5e5, "rope_scaling": None}),
    "older linear": ("llama", {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "older llama3": (
        "llama",
        {
            "rope_theta": 5e5,
            "rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "newer llama3": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
            }
        },
    ),
    "length on top": (
        "llama",
        {
            "original_max_position_embeddings": 32,
            "rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "theta inside and on top": ("llama", {"rope_theta": 3.0, "rope_parameters": {"rope_theta": 7e5}}),
    "both objects": (
        "llama",
        {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"rope_type": "default"}},
    ),
    "yarn older": (
        "llama",
        {"rope_theta": 5e5, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    ),
    "yarn newer": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e6, "factor": 40.0, "original_max_position_embeddings": 64,
                "mscale": 0.7, "mscale_all_dim": 1.0, "beta_fast": 16, "beta_slow": 2, "truncate": False,
            }
        },
    ),
    "yarn without a factor": (
        "llama",
        {"rope_parameters": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 64}},
    ),
    "gemma3 newer": ("gemma3_text", {"rope_parameters": GEMMA3_ROPES}),
    "gemma3 older": (
        "gemma3_text",
        {"rope_theta": 2e6, "rope_local_base_freq": 3e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "gemma3 newer and older keys": (
        "gemma3_text",
        {"rope_theta": 5.0, "rope_local_base_freq": 6.0, "rope_parameters": GEMMA3_ROPES},
    ),
    "gemma3 none": ("gemma3_text", {}),
    "gemma4 none": ("gemma4_text", {"global_head_dim": 32}),
    "gemma4": (
        "gemma4_text",
        {
            "global_head_dim": 24,
            "rope_parameters": {
                FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.4, "rope_theta": 7e5, "factor": 2.0},
                SLIDING: {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e3},
            },
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROPES)
def test_every_form_of_rope_gives_the_frequencies_of_transformers(name: str) -> None:
    from transformers import AutoConfig
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
    from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    model_type, keys = ROPES[name]
    architecture = next(name for name, each in TYPES.items() if each == model_type)
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "max_position_embeddings": 256}
    shape = parse_shape({"architectures": [architecture], **sizes, **keys})  # before theirs, which writes into keys
    theirs = AutoConfig.for_model(model_type, **sizes, **keys)
    if model_type == "llama":
        rotary = LlamaRotaryEmbedding(theirs)
        wanted = [rotary.inv_freq] * shape.num_layers
        assert {layer.rope.attention_factor for layer in shape.layers} == {rotary.attention_scaling}
    else:
        rotary = (Gemma3RotaryEmbedding if model_type == "gemma3_text" else Gemma4TextRotaryEmbedding)(theirs)
        wanted = [getattr(rotary, f"{kind}_inv_freq") for kind in theirs.layer_types]
    for layer, frequencies in zip(shape.layers, wanted, strict=True):
        torch.testing.assert_close(inverse_frequencies(layer.rope), frequencies, rtol=0, atol=0)


COMMON = [
    "layer_types", "rope_scaling", "rope_parameters", "rope_theta", "sliding_window", "use_sliding_window", "head_dim",
    "max_window_layers", "attention_bias", "query_pre_attn_scalar", "attn_logit_softcapping", "quantization_config",
    "sliding_window_pattern", "rope_local_base_freq", "original_max_position_embeddings", "tie_word_embeddings",
    "num_experts", "num_local_experts", "num_experts_per_tok", "mlp_only_layers", "decoder_sparse_step",
    "norm_topk_prob", "moe_intermediate_size", "shared_expert_intermediate_size", "qkv_bias",
    "swiglu_alpha", "swiglu_limit", "per_layer_config", "num_kv_shared_layers", "global_head_dim", "attention_k_eq_v",
    "enable_moe_block", "hidden_size_per_layer_input", "top_k_experts", "num_global_key_value_heads",
]  # fmt: skip
REFUSED: list[tuple[str, Config, str]] = [
    ("Llama", {"sliding_window": 4096}, "sliding_window is 4096"),
    ("Llama", {"layer_types": [SLIDING] * 32}, "layer_types is"),
    ("Llama", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping is 30.0"),
    ("Llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ("Llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor is 0.5"),
    ("Llama", {"attention_multiplier": 0.015}, "attention_multiplier is 0.015"),
    ("Llama", {"residual_multiplier": 0.22}, "residual_multiplier is 0.22"),
    ("Llama", {"logit_scale": 0.0625}, "logit_scale is 0.0625"),
    ("Llama", {"num_local_experts": 8}, "num_local_experts is 8"),
    ("Llama", {"use_qk_norm": True}, "use_qk_norm is True"),
    ("Llama", {"no_rope_layers": [1, 0]}, "no_rope_layers is [1, 0]"),
    ("Llama", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config.bits is None"),
    ("Llama", {"rope_scaling": {"type": "yarn", "factor": 0}}, "rope_scaling.factor is 0"),
    ("Llama", {"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": -1}}, "rope_scaling.beta_fast is -1"),
    ("Llama", {"rope_scaling": {"type": "yarn", "factor": 4.0, "truncate": 1}}, "rope_scaling.truncate is 1"),
    ("Llama", {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}, "rope_type is 'longrope'"),
    ("Llama", {"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 32}}, "rope_scaling.beta_fast is 32"),
    ("Llama", {"rope_scaling": {"factor": 2.0}}, "rope_scaling.factor is 2.0"),
    ("Llama", {"rope_parameters": GEMMA3_ROPES}, "rope_parameters.full_attention is"),
    ("Mistral", {"layer_types": [FULL, SLIDING] * 16}, "layer_types is"),
    ("Mistral", {"sliding_window": None, "layer_types": [SLIDING] * 32}, "layer_types is"),
    ("Mistral", {"sliding_window": -1}, "sliding_window is -1"),
    ("Mistral", {"attention_bias": True}, "attention_bias is True"),
    ("Qwen2", {"attention_bias": False}, "attention_bias is False"),
    ("Qwen2", {"layer_types": [SLIDING] * 32}, "needs use_sliding_window"),
    ("Qwen2", {"layer_types": [FULL] * 31}, "32 times"),
    ("Qwen2", {"layer_types": ["chunked_attention"] * 32}, "layer_types is"),
    ("Qwen2", {"use_sliding_window": True, "sliding_window": None, "layer_types": [SLIDING] * 32}, "sliding_window is"),
    ("Qwen2", {"max_window_layers": -1}, "max_window_layers is -1"),
    ("Qwen2", {"rope_scaling": {"type": "mrope", "mrope_section": [1]}}, "rope_scaling.type is 'mrope'"),
    ("Qwen2", {"dual_chunk_attention_config": {"chunk_size": 1}}, "dual_chunk_attention_config is"),
    ("Qwen3", {"num_experts": 128}, "num_experts is 128"),
    ("Phi3", {"rope_scaling": {"type": "longrope"}}, "rope_scaling.short_factor is None, must be a list of 48 numbers"),
    ("Phi3", {"rope_scaling": {"type": "su", "short_factor": [1.0]}}, "rope_scaling.short_factor is [1.0], must be a"),
    (
        "Phi3",
        {"rope_scaling": {"type": "su", "short_factor": [1.0] * 48, "long_factor": [0.0] * 48}},
        "rope_scaling.long_factor is [0.0, ",
    ),
    ("Phi3", {"partial_rotary_factor": 0.01}, "partial_rotary_factor is 0.01"),
    ("Phi3", {"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5"),
    ("Phi3", {"rope_parameters": {"partial_rotary_factor": "x"}}, "rope_parameters.partial_rotary_factor is 'x'"),
    ("Glm4Moe", {"n_group": 3}, "n_group is 3"),
    ("Glm4Moe", {"topk_group": 2}, "topk_group is 2"),
    ("Glm4Moe", {"n_group": 64, "topk_group": 2}, "topk_group is 2"),
    ("Glm4Moe", {"routed_scaling_factor": 0}, "routed_scaling_factor is 0"),
    ("Glm4Moe", {"first_k_dense_replace": -1}, "first_k_dense_replace is -1"),
    ("DeepseekV2", {"norm_topk_prob": True}, "norm_topk_prob is True"),
    ("DeepseekV2", {"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc'"),
    ("DeepseekV2", {"topk_method": "group_limited_greedy"}, "n_group is None"),
    (
        "DeepseekV2",
        {"topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 9},
        "topk_group is 9",
    ),
    ("DeepseekV2", {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
    ("DeepseekV2", {"num_key_value_heads": 8}, "must be num_attention_heads (32)"),
    ("DeepseekV2", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling.type is 'dynamic'"),
    ("DeepseekV3", {"kv_lora_rank": None}, "kv_lora_rank is None"),
    ("DeepseekV3", {"q_lora_rank": 0}, "q_lora_rank is 0"),
    ("DeepseekV3", {"qk_rope_head_dim": 63}, "qk_rope_head_dim is 63"),
    ("DeepseekV3", {"qk_head_dim": 128}, "must be qk_nope_head_dim + qk_rope_head_dim (192)"),
    ("DeepseekV3", {"moe_layer_freq": 2}, "moe_layer_freq is 2"),
    ("DeepseekV3", {"topk_method": "greedy"}, "topk_method is 'greedy'"),
    ("DeepseekV3", {"rope_interleave": None}, "rope_interleave is None"),
    ("DeepseekV3", {"index_topk": 2048}, "index_topk is 2048"),
    ("Glm4", {"attention_bias": 1}, "attention_bias is 1"),
    ("GptOss", {"swiglu_limit": 0}, "swiglu_limit is 0"),
    ("GptOss", {"swiglu_alpha": "x"}, "swiglu_alpha is 'x'"),
    ("GptOss", {"sliding_window": None}, "sliding_window is None"),
    ("GptOss", {"layer_types": ["chunked_attention"] * 36}, "layer_types is"),
    ("Mixtral", {"num_experts_per_tok": 9}, "must be at most num_experts (8)"),
    ("Mixtral", {"num_local_experts": 0}, "num_local_experts is 0"),
    ("Mixtral", {"norm_topk_prob": True}, "norm_topk_prob is True"),
    ("Qwen2Moe", {"layer_types": [SLIDING] * 24}, "needs use_sliding_window"),
    ("Qwen2Moe", {"shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size is 0"),
    ("Qwen3Moe", {"mlp_only_layers": 3}, "mlp_only_layers is 3"),
    ("Qwen3Moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
    ("Qwen3Moe", {"num_experts_per_tok": 200}, "must be at most num_experts (128)"),
    ("Qwen3Moe", {"moe_intermediate_size": None}, "moe_intermediate_size is None"),
    ("Gemma2", {"use_bidirectional_attention": True}, "only causal attention is served"),
    ("Gemma2", {"sliding_window": None}, "sliding_window is None"),
    ("Gemma2", {"attn_logit_softcapping": 0}, "attn_logit_softcapping is 0"),
    ("Gemma3", {"attn_logit_softcapping": 50.0}, "must be null"),
    ("Gemma3", {"rope_parameters": {"rope_theta": 1e6}}, "rope_parameters.rope_theta is 1000000.0"),
    (
        "Gemma3",
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_parameters": GEMMA3_ROPES},
        "remove one of them",
    ),
    ("Gemma3", {"text_config": {"hidden_size": 64}}, "text_config is"),
    ("Gemma3", {"hidden_activation": "relu"}, "hidden_activation is 'relu'"),
    ("Gemma4", {"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
    ("Gemma4", {"attn_logit_softcapping": 50.0}, "must be null"),
    ("Gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'"),
    ("Gemma4", {"num_kv_shared_layers": 30}, "num_kv_shared_layers is 30"),
    ("Gemma4", {"num_kv_shared_layers": 27, "layer_types": [SLIDING] * 29 + [FULL]}, "num_kv_shared_layers is 27"),
    ("Gemma4", {"enable_moe_block": True}, "needs num_experts"),
    (
        "Gemma4",
        {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8},
        "top_k_experts is 5",
    ),
    ("Gemma4", {"per_layer_config": {"0": {"sliding_window": 4}}}, "per_layer_config.0.sliding_window is 4"),
    ("Gemma4", {"per_layer_config": {"5": {"head_dim": 64}}}, "per_layer_config is"),
    ("Gemma4", {"per_layer_config": {"31": {"head_dim": 64}}}, "per_layer_config.31 is"),
    ("Gemma4", {"attention_k_eq_v": True, "num_global_key_value_heads": 3}, "num_attention_heads is None"),
    ("Gemma4", {"rope_parameters": {FULL: {"rope_type": "yarn"}}}, "rope_parameters.full_attention.rope_type is"),
]


@pytest.mark.parametrize(("family", "keys", "named"), REFUSED)
def test_a_key_that_changes_the_arithmetic_is_refused_by_name(family: str, keys: Config, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_shape({"architectures": [f"{family}ForCausalLM"], **keys}, "/models/some/config.json")
    assert str(caught.value).startswith("/models/some/config.json: ") and named in str(caught.value)


def test_what_is_inside_a_text_config_is_refused_too() -> None:
    config = {**HUB["gemma-3-4b"], "text_config": {**HUB["gemma-3-4b"]["text_config"], "chunk_attention": 5}}
    with pytest.raises(ConfigError, match=r"text_config\.chunk_attention is 5"):
        parse_shape(config)


@pytest.mark.parametrize("composite", COMPOSITES)
def test_the_decoder_of_a_composite_is_of_the_family_that_it_names(composite: str) -> None:
    assert {*TEXTS.values(), *BESIDE_TOWERS} == set(FAMILIES)
    for model_type, architecture in TEXTS.items():
        own = parse_shape({**least(architecture), "tie_word_embeddings": False})
        text = {**least(architecture), "model_type": model_type, "tie_word_embeddings": False}
        inside = parse_shape({"architectures": [composite], "text_config": text, "tie_word_embeddings": False})
        assert inside == replace(own, composite=composite)
    with pytest.raises(ConfigError, match=r"text_config\.model_type is 'bert', must be one of"):
        parse_shape({"architectures": [composite], "text_config": {"model_type": "bert"}})


STRANGE: list[Any] = [
    None, True, False, -1, 0, 1.5, "x", [], [1], [[1]], {}, {"a": 1}, float("nan"), float("inf"), 10**400,
    {"rope_type": ["linear"]}, {"rope_type": "linear", "factor": "2"}, {"full_attention": 1}, {"factor": 10**400},
    {"type": "linear", "factor": 1e300},
]  # fmt: skip


@pytest.mark.parametrize("name", [*HUB, *TYPES])
def test_a_value_of_any_type_is_understood_or_refused(name: str) -> None:
    config = HUB.get(name) or least(name)
    keys = {*config, *COMMON, *(config.get("text_config") or {})} - {"num_hidden_layers"}
    for key in keys:
        for value in STRANGE:
            for changed in ({**config, key: value}, {**config, "text_config": {key: value}}):
                try:
                    parse_shape(changed)
                except ConfigError as error:
                    assert key in str(error) or "text_config" in str(error), (key, value)


@pytest.mark.parametrize(
    "keys",
    [{"sliding_window": None}, {"use_qk_norm": False}, {"residual_multiplier": 1.0}, {"_anything": 3}, {"extras": {}}],
)
def test_a_neutral_key_is_passed_over(keys: Config) -> None:
    config: Config = {"architectures": ["LlamaForCausalLM"]}
    assert parse_shape({**config, **keys}) == parse_shape(config)


def test_a_window_that_no_layer_has_is_off() -> None:
    config: Config = {"architectures": ["Qwen3ForCausalLM"], "use_sliding_window": True, "sliding_window": 8}
    layers = parse_shape({**config, "layer_types": [FULL] * 32}).layers
    assert {layer.attention.window for layer in layers} == {None}
    layers = parse_shape({**config, "max_window_layers": 30}).layers
    assert [layer.attention.window for layer in layers] == [None] * 30 + [8, 8]


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3", "Qwen2Moe", "Qwen3Moe"])
def test_a_window_of_zero_that_is_not_used_is_none(kind: str) -> None:
    """As in transformers, which looks at it only with use_sliding_window."""
    values = {"architectures": [f"{kind}ForCausalLM"], "sliding_window": 0, "use_sliding_window": False}
    assert all(layer.attention.window is None for layer in parse_shape(values).layers)
