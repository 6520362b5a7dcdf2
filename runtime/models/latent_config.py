"""What DeepSeek's families have in common: what config.json says of latents, and how their tensors are named.

q_a_proj, q_a_layernorm, q_b_proj (or q_proj)   kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj   o_proj
"""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.attention.latent import LatentSizes
from ramet.runtime.cache.pool import KVShape
from ramet.runtime.layers.experts import ExpertsShape
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FamilyDefaults, ReadLayers, Sizes, read_decoder
from ramet.runtime.models.rope_config import KINDS, RopeDefaults, read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, Pairs, Rows, Sources, WeightMap, expert_layer, usual_layer

OF_HEADS = ("attention.to_latents.layers.*", "attention.from_latents.layers.*")
ROPES = tuple(kind for kind in KINDS if kind != "dynamic")


def read_latent_sizes(config: ConfigObject) -> LatentSizes:
    """Defaults are those of both classes."""
    turned = config.count("qk_rope_head_dim", 64)
    if turned % 2:
        raise config.error("qk_rope_head_dim", "must be even, as its numbers are turned in pairs")
    sizes = LatentSizes(
        latent=config.count("kv_lora_rank", 512),
        rotated=turned,
        content=config.count("qk_nope_head_dim", 128),
        value=config.count("v_head_dim", 128),
        query_latent=config.optional_count("q_lora_rank", 1536),
    )
    if config.count("qk_head_dim", sizes.query) != sizes.query:
        raise config.error("qk_head_dim", f"must be qk_nope_head_dim + qk_rope_head_dim ({sizes.query})")
    return sizes


def latent_layers(
    config: ConfigObject, sizes: Sizes, experts: ExpertsShape | None, first_dense: int
) -> tuple[LayerShape, ...]:
    """The first layers are dense, the others have `experts`."""
    of = read_latent_sizes(config)
    if config.count("moe_layer_freq", 1) != 1:
        raise config.error("moe_layer_freq", "must be 1: every layer behind the dense ones has experts")
    rope = read_rope(config, of.rotated, sizes.context, RopeDefaults(kinds=ROPES))
    attention = LayerAttention(of.query**-0.5 * rope.score_factor, value_size=of.latent)
    dense = LayerShape(attention, rope, kv=KVShape(heads=1, key=of.key, value=0))
    num_dense = config.count("first_k_dense_replace", first_dense, least=0)
    return tuple(dense if i < num_dense else replace(dense, experts=experts) for i in range(sizes.num_layers))


def read_latent_shape(config: ConfigObject, defaults: FamilyDefaults, read_layers: ReadLayers) -> ModelShape:
    shape, of = read_decoder(config, defaults, read_layers), read_latent_sizes(config)
    if shape.kv_heads != shape.heads:
        raise config.error("num_key_value_heads", f"must be num_attention_heads ({shape.heads})")
    return replace(shape, head_dim=of.query, latent=of, qkv_bias=config.flag("attention_bias", False))


def latent_layer(shape: ModelShape) -> dict[str, Sources]:
    of = shape.latent
    assert of is not None, "the family has latents"
    layer = expert_layer(shape, "shared_experts") if shape.experts else usual_layer(shape)
    others = {name: sources for name, sources in layer.items() if not name.startswith("attention.")}
    pairs = (Pairs(size, of.rotated, size - of.rotated) if of.in_pairs else None for size in (of.query, of.key))
    of_query, of_key = pairs
    return {
        **others,
        "attention.q_a": "self_attn.q_a_proj",
        "attention.q_norm": "self_attn.q_a_layernorm",
        "attention.q_b": (Rows(f"self_attn.q_{'b_' * (of.query_latent is not None)}proj", shape.query_size, of_query),),
        "attention.kv_a": (Rows("self_attn.kv_a_proj_with_mqa", of.key, of_key),),
        "attention.kv_norm": "self_attn.kv_a_layernorm",
        "attention.kv_b": "self_attn.kv_b_proj",
        "attention.o": "self_attn.o_proj",
    }


def latent_weights(shape: ModelShape) -> WeightMap:
    further = f"model.layers.{shape.num_layers}."  # what predicts a token more
    return WeightMap(latent_layer(shape), TOP, ignored=(further,), derived=OF_HEADS)
