"""Tensors of a GGUF file as Hugging Face names them, and what llama.cpp has changed in them. Knows no numbers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ramet.runtime.errors import ConfigError
from ramet.runtime.gguf.file import GgufHeader, TensorPlace

BLOCK = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
PASSED_OVER = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")  # config.py reads them
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
USUAL = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.*.gate_proj", "ffn_up_exps": "mlp.experts.*.up_proj",
    "ffn_down_exps": "mlp.experts.*.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}  # fmt: skip
OF_MODEL: Mapping[str, Mapping[str, str]] = {  # model_type -> what differs
    "gemma2": {
        "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    "mixtral": {
        "ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "block_sparse_moe.experts.*.w1",
        "ffn_up_exps": "block_sparse_moe.experts.*.w3", "ffn_down_exps": "block_sparse_moe.experts.*.w2",
    },
    "phi3": {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
}  # fmt: skip
LIKE = {"gemma3_text": "gemma2"}
INTERLEAVED = {"llama", "mixtral"}  # whose rows of queries and keys are turned in pairs of neighbours
PLUS_ONE = {"gemma2", "gemma3_text"}  # whose norms are stored with one added


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A tensor of Hugging Face's name, in a tensor of the file."""

    name: str
    place: TensorPlace
    expert: int | None = None  # of the first dimension
    heads: int | None = None  # whose rows are put back from pairs of neighbours into halves
    less_one: bool = False
    as_row: bool = False  # [N] here, [1, N] there

    @property
    def shape(self) -> tuple[int, ...]:
        shape = self.place.shape if self.expert is None else self.place.shape[1:]
        return (1, *shape) if self.as_row else shape


def sources_of(header: GgufHeader, config: Mapping[str, Any]) -> Iterator[TensorSource]:
    """Raises ConfigError for a tensor that has no name there. `config` is what config.py made of the file."""
    model_type = config["model_type"]
    names = {**USUAL, **OF_MODEL.get(LIKE.get(model_type, model_type), {})}
    for name, place in sorted(header.places.items(), key=lambda each: each[1].start):
        if name in PASSED_OVER:
            continue
        top, _, kind = name.rpartition(".")
        found = BLOCK.fullmatch(name)
        part = found[2] if found is not None else top
        at = f"model.layers.{found[1]}." if found is not None else ""
        theirs = names.get(part) if found is not None else TOP.get(top)
        if theirs is None or kind not in ("weight", "bias"):
            raise ConfigError(f"{header.path}: tensor {name} does not belong to a {model_type} as ramet reads it")
        heads = {
            "attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"],
        }.get(part) if model_type in INTERLEAVED else None  # fmt: skip
        if heads is not None and place.shape[0] % (2 * heads):
            must = f"must have a multiple of {2 * heads}: two for each of {heads} heads"
            raise ConfigError(f"{header.path}: tensor {name} has {place.shape[0]} rows, {must}")
        if "*" in theirs:
            if len(place.shape) != 3:
                raise ConfigError(f"{header.path}: tensor {name} is {list(place.shape)}, must have one part an expert")
            for expert in range(place.shape[0]):
                yield TensorSource(f"{at}{theirs.replace('*', str(expert))}.{kind}", place, expert)
            continue
        less_one = model_type in PLUS_ONE and part.endswith("norm")
        as_row = part == "ffn_gate_inp_shexp" and len(place.shape) == 1
        yield TensorSource(f"{at}{theirs}.{kind}", place, None, heads, less_one, as_row)
