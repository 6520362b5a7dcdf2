"""Keys of each family at random, published together or not, log-probabilities against transformers to 1e-4."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_families import LATENT_YARN, VOCABULARY, make_family

from ramet.runtime.llm import LLM

NUM_SLOW = 30
TYPES = ("sliding_attention", "full_attention")
NUM_LAYERS = 4
ROPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 700.0},
    {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0},
    {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
]  # fmt: skip
SHARED: dict[str, list[Any]] = {
    "num_key_value_heads": [1, 2, 4],
    "head_dim": [16, 20, 48],
    "rms_norm_eps": [1e-6, 1e-2],
    "tie_word_embeddings": [False, True],
    "rope_parameters": ROPES,
}
WINDOW: dict[str, list[Any]] = {"sliding_window": [1, 5, 31, 32, 33, 1000]}
GEMMA: dict[str, list[Any]] = {
    **SHARED, **WINDOW,
    "attention_bias": [False, True], "query_pre_attn_scalar": [7, 64], "final_logit_softcapping": [None, 2.0],
    "hidden_activation": ["gelu_pytorch_tanh", "gelu", "silu"],
}  # fmt: skip
LATENT: dict[str, list[Any]] = {
    "rms_norm_eps": [1e-6, 1e-2], "tie_word_embeddings": [False, True], "attention_bias": [False, True],
    "rope_parameters": [*ROPES[:2], dict(LATENT_YARN), dict(LATENT_YARN, mscale=1.0, truncate=False)],
    "kv_lora_rank": [9, 16, 50], "q_lora_rank": [None, 12, 33], "qk_rope_head_dim": [2, 12, 32],
    "qk_nope_head_dim": [5, 16, 40], "v_head_dim": [6, 16, 50], "num_attention_heads": [4], "n_shared_experts": [1, 3],
    "first_k_dense_replace": [0, 2, 9], "num_experts_per_tok": [1, 4], "routed_scaling_factor": [1.0, 3.0],
    "n_group": [2, 4], "topk_group": [2],
}  # fmt: skip
KEYS: dict[str, dict[str, list[Any]]] = {
    "llama": {
        **SHARED, "attention_bias": [False, True], "mlp_bias": [False, True],
        "hidden_act": ["silu", "gelu", "gelu_pytorch_tanh"],
    },
    "mistral": {**SHARED, "sliding_window": [None, *WINDOW["sliding_window"]]},
    "qwen2": {**SHARED, **WINDOW, "use_sliding_window": [False, True], "max_window_layers": [0, 2, 9]},
    "qwen3": {**SHARED, **WINDOW, "use_sliding_window": [True], "attention_bias": [False, True], "layer_types": []},
    "deepseek-v2": {  # even, because transformers reads pairs of a rotated key as complex numbers where they lie
        **LATENT, "topk_method": ["greedy", "group_limited_greedy"], "mlp_bias": [False],
        "kv_lora_rank": [10, 16, 50], "qk_nope_head_dim": [6, 16, 40],
    },
    "deepseek-v3": {**LATENT, "norm_topk_prob": [False, True], "rope_interleave": [False, True]},
    "gemma2": {**GEMMA, "attn_logit_softcapping": [None, 1.5], "layer_types": []},
    "gemma3": {**GEMMA, "layer_types": []},
}  # fmt: skip


def drawn(family: str, seed: int) -> dict[str, Any]:
    """Each key has one of its values; layer_types are any."""
    random = np.random.default_rng([seed, *family.encode()])
    keys = {name: values[random.integers(len(values))] if values else None for name, values in KEYS[family].items()}
    if "layer_types" in keys:
        keys["layer_types"] = [TYPES[random.integers(2)] for _ in range(NUM_LAYERS)]
    if family == "gemma3":
        keys["rope_parameters"] = {kind: dict(ROPES[random.integers(len(ROPES))]) for kind in TYPES}
    else:
        keys["rope_parameters"] = dict(keys["rope_parameters"])
    return {**keys, "num_hidden_layers": NUM_LAYERS}


def check(folder: Path, family: str, seed: int) -> None:
    from transformers import AutoModelForCausalLM

    make_family(folder, family, seed, **drawn(family, seed))
    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    random = np.random.default_rng(seed)
    prompts = [random.integers(0, VOCABULARY, n).tolist() for n in (9, 40, 90)]
    params = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
    with LLM(str(folder), dtype="float32", max_total_tokens=512, chunked_prefill_size=70) as llm:
        replies = llm.generate(prompts, params, return_logprob=True, logprob_start_len=0)
    for prompt, reply in zip(prompts, replies, strict=True):
        ids, meta = prompt + reply["output_ids"], reply["meta_info"]
        with torch.inference_mode():
            rows = torch.log_softmax(oracle(torch.tensor([ids])).logits[0], dim=-1)
        got = [value for value, _, _ in [*meta["input_token_logprobs"][1:], *meta["output_token_logprobs"]]]
        assert got == pytest.approx(rows[range(len(ids) - 1), ids[1:]].tolist(), abs=1e-4)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", KEYS)
def test_a_config_at_random(tmp_path: Path, family: str, seed: int) -> None:
    check(tmp_path, family, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 2 + NUM_SLOW))
@pytest.mark.parametrize("family", KEYS)
def test_many_configs_at_random(tmp_path: Path, family: str, seed: int) -> None:
    check(tmp_path, family, seed)
