"""Which tensors of a Hugging Face checkpoint make up each of our parameters, as a family says it.

attention.qkv = q_proj / k_proj / v_proj, one below the other        mlp.gate_up = gate_proj / up_proj
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.runtime.models.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows of heads of which numbers 2 i and 2 i + 1 are turned together; ours are i and rotary_dim / 2 + i."""

    head_dim: int
    rotary_dim: int

    def apart(self, tensor: Tensor) -> Tensor:
        """[heads * head_dim, ...] in our order, which changes no product of a query with a key."""
        heads, turned = tensor.unflatten(0, (-1, self.head_dim)), self.rotary_dim
        parts = heads[:, 0:turned:2], heads[:, 1:turned:2], heads[:, turned:]
        return torch.cat(parts, dim=1).flatten(0, 1)


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor of the checkpoint that is `count` rows of our parameter."""

    source: str
    count: int
    pairs: Pairs | None = None


Sources = str | tuple[Rows, ...]  # one tensor that is the whole parameter, or several, from the first row down


@dataclass(frozen=True, slots=True)
class WeightMap:
    """Names of modules, without ".weight" and ".bias". Those of `layer` follow "model.layers.N.".

    A star stands for the number of an expert, in a name of ours and in those of the checkpoint.
    """

    layer: Mapping[str, Sources]
    top: Mapping[str, str]
    renamed: tuple[tuple[str, str], ...] = ()  # (prefix in the file, what stands for it), the first match counts
    ignored: tuple[str, ...] = ()  # prefixes of what is there for another part of the model

    def canonical(self, name: str) -> str:
        """The checkpoint's name of a tensor as `layer` and `top` have it."""
        for prefix, instead in self.renamed:
            if name.startswith(prefix):
                return instead + name.removeprefix(prefix)
        return name


TOP = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}


def usual_layer(shape: ModelShape) -> dict[str, Sources]:
    """A pre-norm layer as most families name it."""
    return {
        "input_norm": "input_layernorm",
        "attention.qkv": (
            Rows("self_attn.q_proj", shape.query_size),
            Rows("self_attn.k_proj", shape.kv_size),
            Rows("self_attn.v_proj", shape.kv_size),
        ),
        "attention.q_norm": "self_attn.q_norm",
        "attention.k_norm": "self_attn.k_norm",
        "attention.o": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "mlp.gate_up": (Rows("mlp.gate_proj", shape.intermediate), Rows("mlp.up_proj", shape.intermediate)),
        "mlp.down": "mlp.down_proj",
    }


def expert_layer(shape: ModelShape, shared_name: str = "shared_expert") -> dict[str, Sources]:
    """A layer with experts as most families name it."""
    of = shape.experts
    assert of is not None, "the family has experts"
    shared = of.shared_intermediate
    return {
        **usual_layer(shape),
        "mlp.router": "mlp.gate",
        "mlp.choice": "mlp.gate",
        "mlp.gate_up.layers.*": (
            Rows("mlp.experts.*.gate_proj", of.intermediate),
            Rows("mlp.experts.*.up_proj", of.intermediate),
        ),
        "mlp.down.layers.*": "mlp.experts.*.down_proj",
        "mlp.shared.gate_up": (
            Rows(f"mlp.{shared_name}.gate_proj", shared),
            Rows(f"mlp.{shared_name}.up_proj", shared),
        ),
        "mlp.shared.down": f"mlp.{shared_name}.down_proj",
        "mlp.shared_gate": "mlp.shared_expert_gate",
    }


def expert_weights(shape: ModelShape) -> WeightMap:
    return WeightMap(expert_layer(shape), TOP)


def usual_weights(shape: ModelShape) -> WeightMap:
    return WeightMap(usual_layer(shape), TOP)
