"""config.json of a model that a GGUF file holds, made of its metadata: what transformers' class of it would say.

Decides which architectures are read. What llama.cpp has in its code and not in the file is here: windows of Gemma,
norms of chosen experts, the scale of queries. Names of tensors are in names.py.
"""

import math
from collections.abc import Callable
from typing import Any

from ramet.runtime.errors import ConfigError
from ramet.runtime.gguf.file import GgufHeader
from ramet.runtime.gguf.metadata import Metadata
from ramet.runtime.gguf.neutral import is_usual_scale
from ramet.runtime.gguf.tensors import read_floats

Config = dict[str, Any]
DTYPES = {"F32": "float32", "F16": "float16"}  # others are widened to bfloat16
EMBEDDING, HEAD, ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
LLAMA3 = dict(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)  # of all that there are
NULL = object()  # a null of config.json, where an absent key would have another default
GEMMA2_27B_LAYERS, GEMMA3_27B_LAYERS = 46, 62  # whose queries have another scale


def config_of(header: GgufHeader) -> Config:
    """Raises ConfigError."""
    metadata = Metadata(header)
    if metadata.architecture not in ARCHITECTURES:
        raise ConfigError(
            f"{header.path}: general.architecture is {metadata.architecture!r}, must be one of "
            f"{', '.join(ARCHITECTURES)}"
        )
    if (num_files := metadata.header.metadata.get("split.count", 1)) not in (0, 1):
        raise ConfigError(f"{header.path} is one of {num_files} files: join them with `llama-gguf-split --merge`")
    common = _common(metadata)
    config = {**common, **ARCHITECTURES[metadata.architecture](metadata)}
    _check_scale(metadata, config.get("query_pre_attn_scalar") or common["head_dim"])
    metadata.refuse_unread()
    return {name: None if value is NULL else value for name, value in config.items() if value is not None}


def _check_scale(metadata: Metadata, head_dim: int) -> None:
    """Raises ConfigError for a scale of scores that the class does not have."""
    scale = metadata.get("attention.scale")
    if scale is not None and not metadata.is_neutral("attention.scale") and not is_usual_scale(scale, head_dim):
        raise metadata.unknown("attention.scale")


def _common(metadata: Metadata) -> Config:
    places = metadata.header.places
    if EMBEDDING not in places or len(places[EMBEDDING].shape) != 2:
        raise ConfigError(f"{metadata.header.path}: tensor {EMBEDDING} must be there, in two dimensions")
    heads = metadata.count("attention.head_count")
    size = metadata.count("embedding_length")
    head_dim = metadata.count("attention.key_length", metadata.optional_count("rope.dimension_count") or size // heads)
    if metadata.optional_count("attention.value_length") not in (None, head_dim):
        raise metadata.error("attention.value_length", f"must be {head_dim}, as keys have")
    types = {place.type_name for place in places.values() if len(place.shape) > 1}
    return {
        "vocab_size": places[EMBEDDING].shape[0],
        "hidden_size": size,
        "intermediate_size": metadata.count(
            "feed_forward_length", metadata.count_above_zero("expert_feed_forward_length")
        ),
        "num_hidden_layers": metadata.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": metadata.count("context_length"),
        "rms_norm_eps": metadata.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": metadata.number("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(metadata, head_dim),
        "tie_word_embeddings": HEAD not in places,
        "torch_dtype": DTYPES.get(types.pop(), "bfloat16") if len(types) == 1 else "bfloat16",
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _rope_scaling(metadata: Metadata, head_dim: int) -> Config | None:
    kind, factor = metadata.get("rope.scaling.type"), metadata.optional_number("rope.scaling.factor")
    original = metadata.count_above_zero("rope.scaling.original_context_length")
    attention = metadata.optional_number("rope.scaling.attn_factor")
    if ROPE_FACTORS in metadata.header.places:
        return _llama3(metadata, head_dim)
    if kind in (None, "none", "longrope") or factor is None or metadata.is_neutral("rope.scaling.factor"):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise metadata.error("rope.scaling.type", "must be one of none, linear, yarn, longrope")
    found = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    return {**found, "attention_factor": attention * (1 + 0.1 * math.log(factor))} if attention else found


def _llama3(metadata: Metadata, head_dim: int) -> Config:
    """The file holds what each frequency is divided by; config.json what that is computed from."""
    found, theta = read_floats(metadata.header, ROPE_FACTORS), metadata.number("rope.freq_base", 10000.0)
    factor = max(found)
    scaling = {"rope_type": "llama3", "factor": factor, **LLAMA3}
    low, high, original = LLAMA3.values()
    wanted = []
    for i in range(0, head_dim, 2):
        length = 2 * math.pi * theta ** (i / head_dim)
        smooth = min(1.0, max(0.0, (original / length - low) / (high - low)))
        wanted.append(1 / ((1 - smooth) / factor + smooth))
    if len(found) != len(wanted) or any(abs(a - b) > 1e-4 * b for a, b in zip(found, wanted, strict=True)):
        raise ConfigError(f"{metadata.header.path}: tensor {ROPE_FACTORS} is not that of a Llama 3, which ramet reads")
    return scaling


def _llama(metadata: Metadata) -> Config:
    turned, head_dim = metadata.optional_count("rope.dimension_count"), metadata.optional_count("attention.key_length")
    if turned is not None and head_dim not in (None, turned):
        raise metadata.error("rope.dimension_count", f"must be {head_dim}, the size of a head")
    places = metadata.header.places
    if metadata.get("expert_count"):
        return {**_of("MixtralForCausalLM", "mixtral", "silu"), **_experts(metadata, "num_local_experts")}
    biases = {"attention_bias": "blk.0.attn_q.bias" in places, "mlp_bias": "blk.0.ffn_up.bias" in places}
    metadata.get("expert_used_count")
    return {**_of("LlamaForCausalLM", "llama", "silu"), **biases}


def _of(architecture: str, model_type: str, activation: str) -> Config:
    return {"architectures": [architecture], "model_type": model_type, "hidden_act": activation}


def _experts(metadata: Metadata, num_name: str, *, are_normed: bool = True) -> Config:
    """`are_normed`: llama.cpp makes the weights of the chosen experts one in sum, whatever the file says."""
    if metadata.get("expert_weights_norm") not in (None, are_normed):
        raise metadata.error("expert_weights_norm", f"must be {are_normed}, which llama.cpp computes for this model")
    return {
        num_name: metadata.count("expert_count"),
        "num_experts_per_tok": metadata.count("expert_used_count"),
        "moe_intermediate_size": metadata.count_above_zero("expert_feed_forward_length"),
    }


def _qwen2(metadata: Metadata) -> Config:
    return _of("Qwen2ForCausalLM", "qwen2", "silu")


def _qwen2_moe(metadata: Metadata) -> Config:
    shared = {"shared_expert_intermediate_size": metadata.count("expert_shared_feed_forward_length")}
    name = _of("Qwen2MoeForCausalLM", "qwen2_moe", "silu")
    return {**name, **_experts(metadata, "num_experts", are_normed=False), **shared, "norm_topk_prob": False}


def _qwen3(metadata: Metadata) -> Config:
    return _of("Qwen3ForCausalLM", "qwen3", "silu")


def _qwen3_moe(metadata: Metadata) -> Config:
    name = _of("Qwen3MoeForCausalLM", "qwen3_moe", "silu")
    return {**name, **_experts(metadata, "num_experts"), "norm_topk_prob": True}


def _gemma(metadata: Metadata, architecture: str, model_type: str, large: int) -> Config:
    heads, layers = metadata.count("attention.head_count"), metadata.count("block_count")
    size = metadata.count("embedding_length")
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": size // heads if layers == large else metadata.count("attention.key_length", 256),
        "sliding_window": metadata.count("attention.sliding_window", 4096),
        "final_logit_softcapping": _cap(metadata, "final_logit_softcapping"),
    }


def _gemma2(metadata: Metadata) -> Config:
    config = _gemma(metadata, "Gemma2ForCausalLM", "gemma2", GEMMA2_27B_LAYERS)
    return {**config, "attn_logit_softcapping": _cap(metadata, "attn_logit_softcapping")}


def _cap(metadata: Metadata, name: str) -> Any:
    """None: the file does not say."""
    return NULL if metadata.is_neutral(name) else metadata.optional_number(name)


def _gemma3(metadata: Metadata) -> Config:
    config, layers = (
        _gemma(metadata, "Gemma3ForCausalLM", "gemma3_text", GEMMA3_27B_LAYERS),
        metadata.count("block_count"),
    )
    pattern = metadata.get("attention.sliding_window_pattern") or 6
    slides = pattern if isinstance(pattern, list) else [(i + 1) % pattern != 0 for i in range(layers)]
    return {
        **config,
        "rope_theta": metadata.number("rope.freq_base", 1e6),
        "rope_local_base_freq": metadata.number("rope.freq_base_swa", 1e4),
        "layer_types": ["sliding_attention" if slide else "full_attention" for slide in slides],
    }


def _phi3(metadata: Metadata) -> Config:
    head_dim = metadata.count("embedding_length") // metadata.count("attention.head_count")
    turned = metadata.count("rope.dimension_count", head_dim)
    config = {
        **_of("Phi3ForCausalLM", "phi3", "silu"),
        "sliding_window": metadata.count_above_zero("attention.sliding_window"),
        "partial_rotary_factor": turned / head_dim if turned != head_dim else None,
        "head_dim": None,
    }
    if LONG_FACTORS not in metadata.header.places:
        return config
    long, short = (read_floats(metadata.header, name) for name in (LONG_FACTORS, SHORT_FACTORS))
    return {
        **config,
        "original_max_position_embeddings": metadata.count("rope.scaling.original_context_length"),
        "rope_scaling": {"rope_type": "longrope", "long_factor": long, "short_factor": short},
    }


ARCHITECTURES: dict[str, Callable[[Metadata], Config]] = {  # as GGUF names them
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "llama": _llama,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3_moe,
}
