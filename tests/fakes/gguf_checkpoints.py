"""GGUF files made of model folders with the gguf package, as llama.cpp's converter writes them."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

ARCHITECTURES = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2", "Qwen2MoeForCausalLM": "qwen2moe", "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe", "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3",
    "Phi3ForCausalLM": "phi3",
}  # fmt: skip
SPECIAL, PIECE, USER, UNKNOWN, BYTE = 3, 1, 4, 2, 6


def write_gguf(folder: Path, file: Path, kind: str = "F32", pre: str = "gpt-2", **keys: Any) -> Path:
    """`kind`: of matrices; norms and biases are float32. `keys`: further metadata of the architecture."""
    config = json.loads((folder / "config.json").read_text())
    arch = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(file, arch)
    _write_shape(writer, arch, config)
    for name, value in keys.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"{arch}.{name}", value)
    if (folder / "tokenizer.json").is_file():
        _write_tokenizer(writer, folder, pre)
    rope = config.get("rope_parameters") or {}
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(rope, config["head_dim"]))
    for name, tensor in _renamed(tensors, arch, config).items():
        _add(writer, name, tensor.float().numpy(), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add(writer: gguf.GGUFWriter, name: str, numbers: np.ndarray, kind: str) -> None:
    chosen = gguf.GGMLQuantizationType["F32" if numbers.ndim == 1 or "gate_inp" in name else kind]
    if chosen == gguf.GGMLQuantizationType.F32:
        writer.add_tensor(name, numbers)
    elif chosen == gguf.GGMLQuantizationType.F16:
        writer.add_tensor(name, numbers.astype(np.float16))
    else:
        writer.add_tensor(name, gguf.quants.quantize(numbers, chosen), raw_dtype=chosen)


def _write_shape(writer: gguf.GGUFWriter, arch: str, config: dict[str, Any]) -> None:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    head_dim = config.get("head_dim") or hidden // heads
    if arch not in ("phi3", "qwen2moe", "qwen2"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch in ("llama", "phi3"):
        writer.add_rope_dimension_count(int(head_dim * (rope.get("partial_rotary_factor") or 1)))
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if arch in ("gemma2", "gemma3", "phi3") and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if arch in ("gemma2", "gemma3"):
        if config.get("final_logit_softcapping"):
            writer.add_final_logit_softcapping(config["final_logit_softcapping"])
        if arch == "gemma2":
            writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if "moe_intermediate_size" in config:
            writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        if "shared_expert_intermediate_size" in config:
            writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _llama3_factors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    """What each frequency is divided by, as transformers computes it."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(head_dim=head_dim, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = rope["rope_theta"] ** (-torch.arange(0, head_dim, 2) / head_dim)
    return (plain / scaled).numpy().astype(np.float32)


LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
}  # fmt: skip
GEMMA = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
EXPERT = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _renamed(tensors: dict[str, Tensor], arch: str, config: dict[str, Any]) -> dict[str, Tensor]:
    names = {**LAYER, **(GEMMA if arch.startswith("gemma") else {})}
    found: dict[str, Tensor] = {}
    experts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        stem, kind = name.rsplit(".", 1)
        if arch.startswith("gemma") and stem.endswith("norm"):
            tensor = tensor + 1
        if stem in TOP:
            found[f"{TOP[stem]}.{kind}"] = tensor
            continue
        _, _, layer, part = stem.split(".", 3)
        if ".experts." in part:
            _, number, which = part.rsplit(".", 2)
            experts.setdefault(f"blk.{layer}.ffn_{EXPERT[which]}_exps.weight", {})[int(number)] = tensor
            continue
        if arch == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"):
            tensor = _pairs(tensor, config["num_attention_heads" if "q_proj" in part else "num_key_value_heads"])
        if part == "mlp.shared_expert_gate":
            tensor = tensor[0]
        found[f"blk.{layer}.{names[part]}.{kind}"] = tensor
    return found | {name: torch.stack([parts[i] for i in range(len(parts))]) for name, parts in experts.items()}


def _pairs(tensor: Tensor, heads: int) -> Tensor:
    """Rows as llama.cpp turns them: those of a head's halves side by side."""
    return tensor.reshape(heads, 2, len(tensor) // heads // 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def _write_tokenizer(writer: gguf.GGUFWriter, folder: Path, pre: str) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    model = content["model"]
    vocabulary: dict[str, int] = {**model["vocab"], **{t["content"]: t["id"] for t in content["added_tokens"]}}
    tokens = sorted(vocabulary, key=lambda text: vocabulary[text])
    kinds = {t["content"]: SPECIAL if t["special"] else USER for t in content["added_tokens"]}
    is_pieces = model.get("byte_fallback", False)

    def kind_of(text: str) -> int:
        if text == model.get("unk_token"):
            return UNKNOWN
        return kinds.get(text, BYTE if is_pieces and text.startswith("<0x") else PIECE)

    writer.add_tokenizer_model("llama" if is_pieces else "gpt2")
    writer.add_tokenizer_pre("default" if is_pieces else pre)
    types = [kind_of(text) for text in tokens]
    # of such tokens llama.cpp's converter writes spaces, and a score that is not theirs
    spaced = [text.replace("▁", " ") if is_pieces and kind == USER else text for text, kind in zip(tokens, types)]
    writer.add_token_list(spaced)
    writer.add_token_types(types)
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    if is_pieces:
        ranks = {"".join(merge): -float(i) for i, merge in reversed(list(enumerate(merges)))}
        scores = [-1000.0 if kind == USER else ranks.get(text, -1e6) for text, kind in zip(tokens, types)]
        writer.add_token_scores(scores)
        normalizers = json.dumps(content["normalizer"])
        writer.add_add_space_prefix("Prepend" in normalizers)
        writer.add_add_bos_token(f'"{settings.get("bos_token")}"' in json.dumps(content["post_processor"]))
    else:
        writer.add_token_merges([" ".join(merge) for merge in merges])
        writer.add_add_bos_token(bool(settings.get("add_bos_token")))
    for name, add in (("bos_token", writer.add_bos_token_id), ("eos_token", writer.add_eos_token_id)):
        if settings.get(name) in vocabulary:
            add(vocabulary[settings[name]])
    if "chat_template" in settings:
        writer.add_chat_template(settings["chat_template"])
