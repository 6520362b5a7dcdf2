"""Values of GGUF keys that change nothing: llama.cpp computes with them what it computes without the key.

Decides nothing about keys that config.py reads, whose readers know their own.
"""

import math
from typing import Any

NONE_OR_ONE = (0, 1)  # of multipliers: llama.cpp takes 0 as none
VALUES: dict[str, tuple[float, ...]] = {
    # multipliers
    **dict.fromkeys(("logit_scale", "embedding_scale", "residual_scale", "expert_weights_scale"), NONE_OR_ONE),
    **dict.fromkeys(("rope.scale_linear", "rope.scaling.factor"), NONE_OR_ONE),
    **dict.fromkeys(("attention.output_scale", "rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"), (1,)),
    "rope.scaling.yarn_beta_fast": (32,),
    "rope.scaling.yarn_beta_slow": (1,),
    # caps, biases of positions, windows
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping", "router_logit_softcapping"), (0,)),
    **dict.fromkeys(("attention.clamp_kqv", "attention.max_alibi_bias", "activation_sparsity_scale"), (0,)),
    **dict.fromkeys(("attention.temperature_length", "attention.temperature_scale"), (0,)),
    **dict.fromkeys(("attention.sliding_window", "attention.sliding_window_pattern"), (0,)),
    "attention.scale": (0,),
    # experts: a gate of 1 is a softmax
    **dict.fromkeys(("expert_count", "expert_used_count", "expert_shared_count", "experts_per_group"), (0,)),
    **dict.fromkeys(("expert_feed_forward_length", "expert_shared_feed_forward_length"), (0,)),
    "expert_chunk_feed_forward_length": (0,),
    **dict.fromkeys(("expert_group_count", "expert_group_used_count", "expert_gating_func"), (0, 1)),
    **dict.fromkeys(("leading_dense_block_count", "moe_every_n_layers", "moe_latent_size"), (0,)),
    # layers and parts that other architectures have
    **dict.fromkeys(("nextn_predict_layers", "n_deepstack_layers", "attention.shared_kv_layers"), (0,)),
    **dict.fromkeys(("attention.q_lora_rank", "attention.kv_lora_rank", "embedding_length_per_layer_input"), (0,)),
    **dict.fromkeys(("full_attention_interval", "rescale_every_n_layers", "token_shift_count"), (0,)),
}


def is_neutral(name: str, value: Any) -> bool:
    """`name`: without the architecture. A list has a value for each layer."""
    if isinstance(value, list):
        return all(is_neutral(name, each) for each in value)
    if value is False or value == "":
        return True
    return not isinstance(value, bool | str) and value in VALUES.get(name, ())


def is_usual_scale(value: Any, head_dim: float) -> bool:
    """Whether a scale of scores is that of attention without one. A file has it in float32."""
    return isinstance(value, float) and math.isclose(value, head_dim**-0.5, rel_tol=1e-6)
