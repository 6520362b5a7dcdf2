"""Seeded, untrained checkpoints of models that no family of ours reads, or that one does too, written by transformers.

Decides which classes are served through transformers for certain (SERVED), each at sizes that a test affords, and which
are refused, by a word that the refusal has (REFUSED). Windows are of 8 tokens.

    python scripts/tiny_others.py FOLDER olmo2
"""

import argparse
import json
from pathlib import Path
from typing import Any

from tiny_families import GEMMA, SIZES, VOCABULARY, WINDOW, Config, write_checkpoint

HEADS16 = dict(head_dim=16)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)
LATENT = dict(
    num_key_value_heads=4, kv_lora_rank=24, q_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16,
    n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=24, first_k_dense_replace=1, n_shared_experts=1,
    n_group=4, topk_group=2,
)  # fmt: skip
BOTH = ["sliding_attention", "full_attention"]
LLAMA4 = dict(HEADS16, intermediate_size_mlp=96, num_local_experts=4, num_hidden_layers=4)
MIXED = dict(num_hidden_layers=4, sliding_window=WINDOW)
LONG = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 8, long_factor=[1.0] * 4 + [8.0] * 4)
DYNAMIC = dict(rope_type="dynamic", rope_theta=1e4, factor=4.0)
YARN = dict(
    rope_type="yarn", rope_theta=1e4, factor=8.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0
)
GRANITE = dict(embedding_multiplier=6.0, logits_scaling=4.0, residual_multiplier=0.5, attention_multiplier=0.125)
GPT = dict(
    vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=SIZES["max_position_embeddings"],
    bos_token_id=0, eos_token_id=SIZES["eos_token_id"],
)  # fmt: skip

SERVED: dict[str, tuple[str, Config]] = {  # name -> model_type, what differs from SIZES
    "llama": ("llama", dict(rope_parameters=YARN)),
    "mistral": ("mistral", dict(sliding_window=WINDOW)),
    "ministral": ("ministral", dict(HEADS16, sliding_window=WINDOW, layer_types=BOTH)),
    "ministral3": ("ministral3", dict(HEADS16)),
    "qwen2": ("qwen2", dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)),
    "qwen3": ("qwen3", dict(head_dim=32)),
    "qwen2_moe": ("qwen2_moe", dict(EXPERTS, shared_expert_intermediate_size=40)),
    "qwen3_moe": ("qwen3_moe", dict(EXPERTS, head_dim=32, norm_topk_prob=True)),
    "mixtral": ("mixtral", dict(num_local_experts=5)),
    "gemma": ("gemma", dict(head_dim=32)),
    "gemma2": ("gemma2", dict(GEMMA, attn_logit_softcapping=4.0)),
    "gemma3": ("gemma3_text", dict(GEMMA, num_hidden_layers=6)),
    "gemma4": (
        "gemma4_text",
        dict(
            HEADS16, global_head_dim=32, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCABULARY,
            sliding_window=WINDOW, num_hidden_layers=4, num_kv_shared_layers=2,
            layer_types=BOTH * 2,
        ),
    ),
    "phi": ("phi", {}),
    "phi3": ("phi3", {}),
    "phi3-longrope": ("phi3", dict(original_max_position_embeddings=64, rope_parameters=LONG)),
    "phimoe": ("phimoe", dict(num_local_experts=4)),
    "olmo": ("olmo", {}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", MIXED),
    "olmoe": ("olmoe", dict(num_experts=6, num_experts_per_tok=2)),
    "deepseek_v2": ("deepseek_v2", dict(LATENT, topk_method="group_limited_greedy")),
    "deepseek_v3": ("deepseek_v3", LATENT),
    "glm": ("glm", HEADS16),
    "glm4": ("glm4", HEADS16),
    "glm4_moe": (
        "glm4_moe",
        dict(HEADS16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, use_qk_norm=True),
    ),
    "granite": ("granite", GRANITE),
    "granitemoe": ("granitemoe", dict(GRANITE, num_local_experts=4)),
    "smollm3": ("smollm3", dict(num_hidden_layers=4)),
    "stablelm": ("stablelm", {}),
    "cohere": ("cohere", {}),
    "cohere2": ("cohere2", MIXED),
    "starcoder2": ("starcoder2", dict(sliding_window=WINDOW)),
    "exaone4": ("exaone4", MIXED),
    "nemotron": ("nemotron", {}),
    "seed_oss": ("seed_oss", HEADS16),
    "ernie4_5": ("ernie4_5", HEADS16),
    "hunyuan": ("hunyuan_v1_dense", HEADS16),
    "apertus": ("apertus", {}),
    "minimax_m2": ("minimax_m2", dict(HEADS16, num_local_experts=4, num_experts_per_tok=2)),
    "arcee": ("arcee", {}),
    "helium": ("helium", HEADS16),
    "persimmon": ("persimmon", {}),
    "dots1": (
        "dots1",
        dict(HEADS16, n_shared_experts=1, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24),
    ),
    "gpt_oss": ("gpt_oss", dict(head_dim=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=WINDOW)),
    "gpt2": ("gpt2", GPT),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "gpt_neox": ("gpt_neox", {}),
    "opt": ("opt", dict(ffn_dim=96, word_embed_proj_dim=64)),
    "biogpt": ("biogpt", {}),
    "llama-dynamic": ("llama", dict(rope_parameters=DYNAMIC)),
}  # fmt: skip
STATE = dict(num_hidden_layers=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2)
REFUSED: dict[str, tuple[str, Config, str]] = {  # name -> as above, what the refusal names
    "falcon": ("falcon", {}, "attention classes of its own"),
    "bloom": ("bloom", dict(n_layer=2, n_head=4), "attend through transformers' attention interface"),
    "mpt": ("mpt", dict(d_model=64, n_layers=2, n_heads=4), "attend through transformers' attention interface"),
    "gptj": ("gptj", dict(GPT, rotary_dim=8), "attention classes of its own"),
    "gpt_neo": ("gpt_neo", dict(num_layers=2, attention_types=[[["global"], 2]]), "attention classes of its own"),
    "mamba": ("mamba", dict(state_size=8), "linear_attention"),
    "mamba2": ("mamba2", dict(state_size=8, num_heads=8, head_dim=16, n_groups=2, chunk_size=16), "linear_attention"),
    "jamba": (
        "jamba",
        dict(num_hidden_layers=4, attn_layer_period=4, attn_layer_offset=2, num_experts=4, use_mamba_kernels=False),
        "linear_attention",
    ),
    "qwen3_next": ("qwen3_next", dict(EXPERTS, **STATE, **HEADS16, linear_num_value_heads=4), "linear_attention"),
    "qwen3_5": ("qwen3_5_text", dict(STATE, **HEADS16, linear_num_value_heads=4), "linear_attention"),
    "lfm2": ("lfm2", dict(layer_types=["conv", "full_attention"]), "conv"),
    "llama4": ("llama4_text", dict(LLAMA4, attn_temperature_tuning=False), "chunked_attention"),
    "llama4-full": ("llama4_text", dict(LLAMA4, layer_types=["full_attention"] * 4), "attn_temperature_tuning"),
    "gemma3-both-ways": (
        "gemma3_text",
        dict(head_dim=32, sliding_window=WINDOW, use_bidirectional_attention=True),
        "not causal",
    ),
    "t5": ("t5", {}, "is not a causal language model"),
    "bert": ("bert", dict(is_decoder=False), "not causal"),
}  # fmt: skip


def config_of(model_type: str, changes: Config) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(model_type, **{**SIZES, **json.loads(json.dumps(changes))})


def make_other(folder: str | Path, name: str, seed: int = 0) -> Path:
    """Write the folder (made if missing) of one that is SERVED, with a tokenizer, and return it."""
    from transformers import AutoModelForCausalLM

    return write_checkpoint(Path(folder), AutoModelForCausalLM.from_config(config_of(*SERVED[name])), seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="write a seeded, untrained checkpoint that transformers' modules serve"
    )
    parser.add_argument("folder")
    parser.add_argument("model", choices=list(SERVED))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(make_other(args.folder, args.model, args.seed))


if __name__ == "__main__":
    main()
