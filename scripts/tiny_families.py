"""Seeded, untrained checkpoints of every model family, written by transformers: published names, shards, tied heads.

Decides sizes and weights. Windows are of 8 tokens and soft caps low, so that a short prompt meets them; weights are
large enough that outputs vary. `published` turns config.json into the form that files had before `rope_parameters`.

    python scripts/tiny_families.py FOLDER gemma2
"""

import argparse
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tiny_model import EOS, write_json, write_tokenizer

VOCABULARY, CONTEXT, WINDOW = 384, 256, 8
SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=CONTEXT, pad_token_id=None, bos_token_id=0, eos_token_id=EOS,
)  # fmt: skip
LLAMA3 = dict(
    rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=64,
)  # fmt: skip
GEMMA = dict(head_dim=32, query_pre_attn_scalar=24, sliding_window=WINDOW, final_logit_softcapping=3.0)
GEMMA4 = dict(
    head_dim=32, global_head_dim=48, sliding_window=WINDOW, num_hidden_layers=6, vocab_size_per_layer_input=VOCABULARY,
    layer_types=[*["sliding_attention", "sliding_attention", "full_attention"] * 2], final_logit_softcapping=3.0,
)  # fmt: skip
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=8.0, original_max_position_embeddings=32, beta_fast=4.0)
MOE = dict(num_experts=6, moe_intermediate_size=24)
LATENT = dict(
    kv_lora_rank=40, q_lora_rank=48, qk_rope_head_dim=16, qk_nope_head_dim=24, v_head_dim=20, num_key_value_heads=4,
    n_routed_experts=8, moe_intermediate_size=24, num_experts_per_tok=3, n_shared_experts=2,
)  # fmt: skip
LATENT_YARN = dict(YARN, factor=8.0, mscale=0.707, mscale_all_dim=1.0)
DELTA = dict(
    num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], head_dim=32,
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
    linear_value_head_dim=24,
)  # fmt: skip
GEMMA3_ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
Config = dict[str, Any]


def published(config: Config) -> None:
    """WRITES config: `rope_theta` and `rope_scaling` on top, `torch_dtype`, and no key that older files do not have."""
    rope = config.pop("rope_parameters")
    config["rope_theta"], kind = rope.pop("rope_theta"), rope.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)


def published_gemma2(config: Config) -> None:
    """As on the hub: what equals the default of the class is left out, the tied head among it."""
    published(config)
    usual = {"tie_word_embeddings": True, "use_bidirectional_attention": None, "rope_theta": 1e4, "rope_scaling": None}
    for name in [name for name, value in usual.items() if config[name] == value]:
        del config[name]
    config |= {"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid", "sliding_window_size": WINDOW}


def published_gemma3(config: Config) -> None:
    """As on the hub, before each type of layer had an object for its rope."""
    ropes = config.pop("rope_parameters")
    full = ropes["full_attention"]
    config |= {"rope_theta": full.pop("rope_theta"), "rope_scaling": full, "sliding_window_pattern": 6}
    config["rope_local_base_freq"] = ropes["sliding_attention"]["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    for name in ("layer_types", "use_bidirectional_attention", "_sliding_window_pattern"):
        config.pop(name, None)
    if config["tie_word_embeddings"]:
        del config["tie_word_embeddings"]


def published_phi3(config: Config) -> None:
    """As on the hub: both lengths on top, and which part of a head is turned."""
    published(config)
    part, original = (config["rope_scaling"].pop(name) for name in ("partial_rotary_factor", LONG_FROM))
    config |= {"partial_rotary_factor": part, LONG_FROM: original}


LONG_FROM = "original_max_position_embeddings"
Maker = tuple[str, Config, Callable[[Config], None] | None]
FAMILIES: dict[str, Maker] = {  # name -> model_type, what differs from SIZES, how its config.json is rewritten
    "llama": ("llama", dict(rope_parameters=LLAMA3, num_key_value_heads=4), None),
    "codellama": ("llama", dict(rope_parameters={"rope_type": "default", "rope_theta": 1e6}), published),
    "vicuna": (
        "llama",
        dict(max_position_embeddings=64, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}),
        published,
    ),
    "mistral": ("mistral", dict(sliding_window=WINDOW), None),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True, sliding_window=WINDOW), None),
    "qwen2-window": (
        "qwen2",
        dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
        published,
    ),
    "qwen3": ("qwen3", dict(head_dim=32), None),
    "qwen3-yarn": ("qwen3", dict(head_dim=32, rope_parameters=YARN), None),
    "phi3": ("phi3", dict(sliding_window=WINDOW), published),
    "phi3-partial": ("phi3", dict(rope_parameters=dict(rope_type="default", partial_rotary_factor=0.75)), None),
    "phi3-longrope": (
        "phi3",
        dict(
            original_max_position_embeddings=48, tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="longrope", rope_theta=1e4, partial_rotary_factor=0.75,
                short_factor=[1.0, 1.1, 1.3, 1.4, 1.7, 2.0], long_factor=[1.0, 2.5, 4.0, 9.0, 14.0, 21.0],
            ),
        ),
        published_phi3,
    ),
    "glm": ("glm", dict(head_dim=48), published),
    "glm4": ("glm4", dict(head_dim=32), None),
    "glm4-moe": (
        "glm4_moe",
        dict(
            n_routed_experts=8, moe_intermediate_size=24, num_experts_per_tok=3, n_group=4, topk_group=2,
            routed_scaling_factor=2.5, n_shared_experts=2, num_hidden_layers=3, head_dim=32, use_qk_norm=True,
        ),
        None,
    ),
    "gpt-oss": (
        "gpt_oss",
        dict(
            num_local_experts=5, num_experts_per_tok=2, head_dim=32, sliding_window=WINDOW, intermediate_size=40,
            num_hidden_layers=3, rope_parameters=dict(YARN, truncate=False),
        ),
        None,
    ),
    "deepseek-v2": (
        "deepseek_v2",
        dict(LATENT, q_lora_rank=None, rope_parameters=LATENT_YARN, first_k_dense_replace=1, num_hidden_layers=3),
        published,
    ),
    "deepseek-v2-groups": (
        "deepseek_v2",
        dict(LATENT, topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=4.0),
        None,
    ),
    "deepseek-v3": (
        "deepseek_v3",
        dict(
            LATENT, n_group=4, topk_group=2, rope_parameters=LATENT_YARN, first_k_dense_replace=1,
            num_hidden_layers=3, attention_bias=True,
        ),
        published,
    ),
    "mixtral": ("mixtral", dict(num_local_experts=5, num_experts_per_tok=2), published),
    "qwen2-moe": (
        "qwen2_moe",
        dict(MOE, num_experts_per_tok=3, shared_expert_intermediate_size=40, mlp_only_layers=[0], num_hidden_layers=3),
        None,
    ),
    "qwen3-moe": ("qwen3_moe", dict(MOE, num_experts_per_tok=2, norm_topk_prob=True, head_dim=32), published),
    "qwen3-next": (
        "qwen3_next",
        dict(MOE | DELTA, num_experts_per_tok=3, shared_expert_intermediate_size=40, mlp_only_layers=[1]),
        None,
    ),
    "qwen3.5": ("qwen3_5_text", dict(DELTA, linear_num_key_heads=4, num_hidden_layers=4, layer_types=None), None),
    "qwen3.5-moe": (
        "qwen3_5_moe_text",
        dict(MOE | DELTA, num_experts_per_tok=2, shared_expert_intermediate_size=24),
        None,
    ),
    "gemma2": ("gemma2", dict(GEMMA, attn_logit_softcapping=4.0), published_gemma2),
    "gemma3": ("gemma3_text", dict(GEMMA, num_hidden_layers=7, rope_parameters=GEMMA3_ROPES), None),
    "gemma4": (
        "gemma4_text",
        dict(
            GEMMA4, hidden_size_per_layer_input=16, num_kv_shared_layers=2, use_double_wide_mlp=True,
            num_global_key_value_heads=1,
        ),
        None,
    ),
    "gemma4-moe": (
        "gemma4_text",
        dict(
            GEMMA4, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1, num_experts=5,
            enable_moe_block=True, top_k_experts=2, moe_intermediate_size=24, tie_word_embeddings=False,
        ),
        None,
    ),
    "gemma3-published": (
        "gemma3_text",
        dict(GEMMA, num_hidden_layers=7, rope_parameters=GEMMA3_ROPES),
        published_gemma3,
    ),
}  # fmt: skip
SHARDED = {"qwen2", "gemma2"}
VISION = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28)


def make_family(folder: str | Path, name: str, seed: int = 0, kind: str = "AutoModelForCausalLM", **more: Any) -> Path:
    """Write the folder (made if missing), with a tokenizer, and return it. `more` are keys of the config.

    kind: the class of transformers that has the head, as AutoModel (none) or AutoModelForSequenceClassification.
    """
    import transformers

    model_type, changes, rewrite = FAMILIES[name]
    config = transformers.AutoConfig.for_model(model_type, **{**SIZES, **json.loads(json.dumps(changes)), **more})
    return write_checkpoint(
        Path(folder), getattr(transformers, kind).from_config(config), seed, name in SHARDED, rewrite
    )


def make_composite(folder: str | Path, seed: int = 0, generation: int = 3) -> Path:
    """A Gemma 3 or 4 beside its vision tower, as the larger ones are published."""
    if generation == 4:
        return write_checkpoint(Path(folder), _gemma4_with_tower(), seed)
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig, SiglipVisionConfig

    _, changes, _ = FAMILIES["gemma3"]
    text = Gemma3TextConfig(**{**SIZES, **json.loads(json.dumps(changes))})
    vision = SiglipVisionConfig(**VISION, vision_use_head=False)
    images = dict(mm_tokens_per_image=1, image_token_index=10, boi_token_index=11, eoi_token_index=12)
    config = Gemma3Config(text_config=text, vision_config=vision, **images)
    return write_checkpoint(Path(folder), Gemma3ForConditionalGeneration(config), seed, False, None)


def make_hybrid_composite(folder: str | Path, seed: int = 0) -> Path:
    """A Qwen3.5 beside its vision tower, as all of them are published."""
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    _, changes, _ = FAMILIES["qwen3.5"]
    text = {**SIZES, **json.loads(json.dumps(changes)), "tie_word_embeddings": True}
    tower = dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=64)
    config = Qwen3_5Config(text_config=text, vision_config=tower, tie_word_embeddings=True)
    return write_checkpoint(Path(folder), Qwen3_5ForConditionalGeneration(config), seed, False, None)


def _gemma4_with_tower() -> Any:
    from transformers import Gemma4Config, Gemma4ForConditionalGeneration

    _, changes, _ = FAMILIES["gemma4"]
    vision = {**VISION, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 14, "position_embedding_size": 16}
    del vision["image_size"]
    images = ("image_token_id", "boi_token_id", "eoi_token_id", "video_token_id", "audio_token_id")
    tokens = {name: VOCABULARY + i for i, name in enumerate(images)}  # which no prompt has
    text = {**SIZES, **json.loads(json.dumps(changes)), "pad_token_id": 0}
    return Gemma4ForConditionalGeneration(Gemma4Config(text_config=text, vision_config=vision, **tokens))


def write_checkpoint(
    folder: Path, model: Any, seed: int, sharded: bool = False, rewrite: Callable[[Config], None] | None = None
) -> Path:
    """A tokenizer beside it. WRITES the model's parameters."""
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _fill(name, parameter, seed)
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "layer_scalar")):
                _fill(name, buffer, seed)
    model.save_pretrained(folder, max_shard_size="100KB" if sharded else "1GB")
    if rewrite is not None:
        config = json.loads((folder / "config.json").read_text())
        rewrite(config)
        write_json(folder / "config.json", config)
    write_tokenizer(folder, VOCABULARY, seed, CONTEXT)
    return folder


def _fill(name: str, parameter: torch.Tensor, seed: int) -> None:
    """WRITES parameter: biases and norms near what they start as, matrices so that layers outweigh the embedding."""
    noise = torch.empty(parameter.shape)
    noise.normal_(generator=torch.Generator().manual_seed(zlib.crc32(name.encode(), seed)))
    if "sinks" in name:
        parameter.copy_(noise * 2)
    elif parameter.ndim == 1 and bool((parameter != parameter[0]).any()):  # its class draws it anew each time
        parameter.copy_(noise * 0.5)
    elif parameter.ndim == 1:
        parameter.add_(noise * 0.1 + 2.0 * ("layernorm" in name and "post_" in name))
    elif "embed_tokens" in name:
        parameter.copy_(noise * 0.1)
    elif name.endswith("_proj_bias"):
        parameter.copy_(noise * 0.3)
    else:
        parameter.copy_(noise * 1.5 / parameter.shape[-1] ** 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description="write a seeded, untrained checkpoint of a family")
    parser.add_argument("folder")
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(make_family(args.folder, args.family, args.seed))


if __name__ == "__main__":
    main()
