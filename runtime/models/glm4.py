"""GLM-4-0414 (GLM Team 2025): the block of GLM-4 9B, with norms behind attention and MLP as well."""

from ramet.runtime.models import glm
from ramet.runtime.models.family import Family
from ramet.runtime.models.sandwich import SandwichDecoder
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.weight_map import TOP, WeightMap


def weights(shape: ModelShape) -> WeightMap:
    norms = {"attention_out_norm": "post_self_attn_layernorm", "mlp_out_norm": "post_mlp_layernorm"}
    return WeightMap({**glm.layer_of(shape), **norms}, TOP)


FAMILY = Family(glm.read_shape, SandwichDecoder, weights)
