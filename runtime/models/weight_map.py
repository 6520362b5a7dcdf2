"""Which tensors of a Hugging Face checkpoint make up each of our parameters, as a family says it.

attention.qkv = q_proj / k_proj / v_proj, one below the other        mlp.gate_up = gate_proj / up_proj
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ramet.runtime.models.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows of heads of which numbers 2 i and 2 i + 1 are turned together; ours are i and rotary_dim / 2 + i.

    Both count from `first` on.
    """

    head_dim: int
    rotary_dim: int
    first: int = 0

    def apart(self, tensor: Tensor) -> Tensor:
        """[heads * head_dim, ...] in our order, which changes no product of a query with a key."""
        heads, end = tensor.unflatten(0, (-1, self.head_dim)), self.first + self.rotary_dim
        even, odd = heads[:, self.first : end : 2], heads[:, self.first + 1 : end : 2]
        return torch.cat((heads[:, : self.first], even, odd, heads[:, end:]), dim=1).flatten(0, 1)


@dataclass(frozen=True, slots=True)
class WeightParts:
    """Rows of groups, each of which has a part of each kind; ours are all parts of one kind, then all of the next."""

    sizes: tuple[int, ...]  # rows of each part, as the checkpoint has them
    order: tuple[int, ...]  # in which the kinds come in ours

    def apart(self, tensor: Tensor) -> Tensor:
        """[groups * sum(sizes), ...] in our order."""
        parts = tensor.unflatten(0, (-1, sum(self.sizes))).split(list(self.sizes), dim=1)
        return torch.cat([parts[kind].flatten(0, 1) for kind in self.order])


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor of the checkpoint that is `count` rows of our parameter."""

    source: str
    count: int
    pairs: Pairs | WeightParts | None = None  # in whose order they are there


@dataclass(frozen=True, slots=True)
class Stack:
    """One tensor of the checkpoint [E, ...] for all experts of a layer, and what the tensors in it stand for.

    Of each expert it has the rows of these, one below the other: `turned` as columns [N, M], `interleaved` in turns.
    """

    names: tuple[str, ...]  # as `layer` has the modules, with ".weight" or ".bias"
    turned: bool = False
    interleaved: bool = False

    @property
    def ndim(self) -> int:
        return 3 if self.names[0].endswith(".weight") else 2

    def apart(self, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Each of the names and its rows, which are no copy."""
        num = len(self.names)
        for expert, own in enumerate(tensor):
            rows = own.mT if self.turned else own
            each = [rows[i::num] for i in range(num)] if self.interleaved else rows.chunk(num)
            yield from ((name.replace("*", str(expert)), part) for name, part in zip(self.names, each, strict=True))


Sources = str | tuple[Rows, ...]  # one tensor that is the whole parameter, or several, from the first row down


@dataclass(frozen=True, slots=True)
class WeightMap:
    """Names of modules, without ".weight" and ".bias". Those of `layer` follow "model.layers.N.".

    A star stands for the number of an expert, in a name of ours and in those of the checkpoint.
    """

    layer: Mapping[str, Sources]
    top: Mapping[str, str]
    special: Mapping[int, Mapping[str, Sources]] = field(default_factory=dict)  # of layers that differ, by number
    renamed: tuple[tuple[str, str], ...] = ()  # (prefix in the file, what stands for it), the first match counts
    ignored: tuple[str, ...] = ()  # prefixes of what is there for another part of the model
    stacks: Mapping[str, Stack] = field(default_factory=dict)  # by names of tensors, without "model.layers.N."
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # a tensor -> all the names that it stands for
    derived: tuple[str, ...] = ()  # modules of ours in a layer that are made of others once these are in

    def of_layer(self, number: int) -> Mapping[str, Sources]:
        return self.special.get(number, self.layer)

    def canonical(self, name: str) -> str:
        """The checkpoint's name of a tensor as `layer` and `top` have it."""
        for prefix, instead in self.renamed:
            if name.startswith(prefix):
                return instead + name.removeprefix(prefix)
        return name

    def apart(self, name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """A tensor by its canonical name, by others that it stands for, or those that are stacked in it."""
        if name in self.aliases:
            yield from ((each, tensor) for each in self.aliases[name])
            return
        before, number, inner = _split(name)
        stack = self.stacks.get(inner)
        if stack is None or tensor.ndim != stack.ndim:
            yield name, tensor
            return
        for each, part in stack.apart(tensor):
            yield f"{before}{number}.{each}", part


def _split(name: str) -> tuple[str, str, str]:
    """ "model.layers.3.mlp.router" -> "model.layers.", "3", "mlp.router" """
    if not name.startswith(LAYERS):
        return "", "", name
    number, _, inner = name.removeprefix(LAYERS).partition(".")
    return LAYERS, number, inner


LAYERS = "model.layers."
TOP = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}


def usual_layer(shape: ModelShape, number: int = 0) -> dict[str, Sources]:
    """A pre-norm layer as most families name it, of the sizes that it has."""
    own, kv = shape.layers[number], shape.kv_shapes[number]
    intermediate = own.intermediate or shape.intermediate
    projections = (
        Rows("self_attn.q_proj", shape.heads * kv.key),
        Rows("self_attn.k_proj", kv.heads * kv.key),
        Rows("self_attn.v_proj", kv.heads * kv.value),
    )
    return {
        "input_norm": "input_layernorm",
        "attention.qkv": tuple(rows for rows in projections if rows.count),
        "attention.q_norm": "self_attn.q_norm",
        "attention.k_norm": "self_attn.k_norm",
        "attention.o": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "mlp.gate_up": (Rows("mlp.gate_proj", intermediate), Rows("mlp.up_proj", intermediate)),
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
