"""Which tensors of a Hugging Face checkpoint make up each of our parameters.

Decides packing: several of their tensors, one below the other, are one of ours. Knows names and row counts only.
    attention.qkv = q_proj / k_proj / v_proj        mlp.gate_up = gate_proj / up_proj
"""

from dataclasses import dataclass

from ramet.runtime.models.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Part:
    """Rows [start, start + rows) of our parameter `name` are the whole of one tensor of the checkpoint."""

    name: str
    start: int
    rows: int


TOP = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
LAYER = {
    "input_norm": ("input_layernorm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.o": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "mlp.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down": ("mlp.down_proj",),
}


def checkpoint_parts(name: str, num_rows: int, shape: ModelShape) -> dict[str, Part]:
    """Checkpoint tensor -> where it goes, for our parameter `name` ("layers.3.mlp.gate_up.weight")."""
    module, _, kind = name.rpartition(".")
    if module in TOP:
        return {f"{TOP[module]}.{kind}": Part(name, 0, num_rows)}
    _, number, block = module.split(".", 2)
    names = [f"model.layers.{number}.{source}.{kind}" for source in LAYER[block]]
    parts, start = {}, 0
    for source, rows in zip(names, _rows(block, num_rows, shape), strict=True):
        parts[source] = Part(name, start, rows)
        start += rows
    assert start == num_rows, f"{name} has {num_rows} rows, its parts have {start}"
    return parts


def is_ignored(name: str, shape: ModelShape) -> bool:
    """Tensors that some checkpoints carry and nobody needs."""
    return name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and shape.tied_head)


def _rows(block: str, num_rows: int, shape: ModelShape) -> tuple[int, ...]:
    match block:
        case "attention.qkv":
            return shape.query_size, shape.kv_size, shape.kv_size
        case "mlp.gate_up":
            return shape.intermediate, shape.intermediate
        case _:
            return (num_rows,)
