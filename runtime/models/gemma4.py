"""Gemma 4's text decoder (Google DeepMind 2026): Gemma 3's block with plain norms and unscaled scores.

Layers without a window have heads of their own size and number, of which a part turns, and may take keys as values.
The last layers may read keys and values of earlier ones. Smaller models have embeddings for each layer, larger ones
experts beside the MLP.
"""

from dataclasses import replace

from ramet.kernels.reference_experts import RouteRule
from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.cache.pool import KVShape
from ramet.runtime.layers.experts import ExpertsShape
from ramet.runtime.layers.rope import RopeShape
from ramet.runtime.models import gemma2
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FULL, SLIDING, Sizes, read_decoder, read_layer_types
from ramet.runtime.models.experts_config import TRAINING
from ramet.runtime.models.family import Family
from ramet.runtime.models.gemma4_layers import Gemma4Decoder
from ramet.runtime.models.rope_config import rope_of
from ramet.runtime.models.shape import LayerEmbeds, LayerShape, ModelShape
from ramet.runtime.models.weight_map import TOP, Rows, Sources, Stack, WeightMap, usual_layer

DEFAULTS = replace(
    gemma2.DEFAULTS, vocab_size=262144, num_hidden_layers=30, max_position_embeddings=131072, rope_extends=False
)
ROPES = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
KINDS = ("default", "linear", "proportional")
BLOCK = ("num_experts", "top_k_experts", "moe_intermediate_size")  # keys of experts
IMAGES_ALONE = "vision"  # tokens of images see each other, those of text what is before them
PROJECTIONS = ("k_proj", "v_proj", "k_norm", "v_norm")  # that layers without keys of their own may have in a file


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    window = config.count("sliding_window", 512)
    if config.get("use_bidirectional_attention") not in (None, False, IMAGES_ALONE):
        raise config.error("use_bidirectional_attention", f"must be null or {IMAGES_ALONE}: attention is causal")
    types = read_layer_types(config, sizes.num_layers, lambda i: (i + 1) % 6 != 0)
    types = (*types[:-1], FULL)  # its class sees to it
    heads = config.count("num_attention_heads", DEFAULTS.num_attention_heads)
    kv_heads = config.count("num_key_value_heads", 4)
    kept = read_kept(config, types, KVShape.of(kv_heads, sizes.head_dim))
    if heads % kept[FULL].heads:
        raise config.error("num_attention_heads", f"must be a multiple of {kept[FULL].heads} (global key/value heads)")
    ropes = read_ropes(config, kept, sizes.context)
    num_own = sizes.num_layers - read_sharing(config, types)
    of, wide = read_experts(config), config.flag("use_double_wide_mlp", False)
    intermediate = config.count("intermediate_size", DEFAULTS.intermediate_size)
    takes_keys = config.flag("attention_k_eq_v", False)

    def layer(number: int, kind: str) -> LayerShape:
        shares = number >= num_own
        source = num_own - 1 - types[:num_own][::-1].index(kind) if shares else None
        return LayerShape(
            LayerAttention(1.0, window if kind == SLIDING else None, keys_of=source),
            ropes[kind],
            qk_norm=True,
            experts=of,
            values_are_keys=takes_keys and kind == FULL,
            kv=replace(kept[kind], heads=0) if shares else kept[kind],
            v_norm=True,
            intermediate=2 * intermediate if shares and wide else None,
        )

    return tuple(layer(number, kind) for number, kind in enumerate(types))


def read_kept(config: ConfigObject, types: tuple[str, ...], usual: KVShape) -> dict[str, KVShape]:
    """Of layers with a window, and of those without one, which newer files say in an object for each layer."""
    own, size = config.optional_count("num_global_key_value_heads", None), config.count("global_head_dim", 512)
    if not config.has("per_layer_config"):
        heads = own if own is not None and config.flag("attention_k_eq_v", False) else usual.heads
        return {SLIDING: usual, FULL: KVShape.of(heads, size)}
    objects, found = config.object("per_layer_config"), dict.fromkeys((SLIDING, FULL), usual)
    named = {int(name): name for name in config.get("per_layer_config") or () if name.isdecimal()}  # "5" or "05"
    for number, kind in enumerate(types):
        entry = objects.object(named.get(number, str(number)))
        of = KVShape.of(entry.count("num_key_value_heads", usual.heads), entry.count("head_dim", usual.key))
        if number > types.index(kind) and of != found[kind]:
            raise config.error("per_layer_config", f"must be the same for layers of the type {kind}")
        found[kind] = of
    return found


def read_sharing(config: ConfigObject, types: tuple[str, ...]) -> int:
    """How many of the last layers read keys and values of others."""
    num = config.count("num_kv_shared_layers", 0, least=0)
    if num and (num >= len(types) or set(types[:-num]) != set(types)):
        raise config.error("num_kv_shared_layers", "must leave layers of each type that have keys of their own")
    return num


def read_ropes(config: ConfigObject, kept: dict[str, KVShape], context: int) -> dict[str, RopeShape]:
    objects = config.object("rope_parameters", ROPES)
    return {kind: rope_of(objects.object(kind), of.key, context, 1e4, kinds=KINDS) for kind, of in kept.items()}


def read_experts(config: ConfigObject) -> ExpertsShape | None:
    if not config.flag("enable_moe_block", False):
        for name in BLOCK:
            config.get(name)  # of no use without the block
        return None
    if not all(config.has(name) for name in BLOCK):
        raise config.error("enable_moe_block", f"needs {', '.join(BLOCK)}")
    num, chosen = config.count("num_experts"), config.count("top_k_experts")
    if chosen > num:
        raise config.error("top_k_experts", f"must be at most num_experts ({num})")
    sharpness = config.count("hidden_size", DEFAULTS.hidden_size) ** -0.5
    rule = RouteRule(chosen, normalise=True, sharpness=sharpness)
    return ExpertsShape(num, config.count("moe_intermediate_size"), rule, beside=True)


def read_shape(config: ConfigObject) -> ModelShape:
    shape = read_decoder(config, DEFAULTS, read_layers)
    bias, size = config.flag("attention_bias", False), config.count("hidden_size_per_layer_input", 256, least=0)
    vocabulary = config.count("vocab_size_per_layer_input", 262144)
    if size and shape.activation == "silu":
        raise config.error("hidden_activation", "must be gelu or gelu_pytorch_tanh where layers have embeddings")
    return replace(
        shape,
        qkv_bias=bias,
        o_bias=bias,
        wide_norms=True,
        embed_scale=shape.hidden**0.5,
        logit_softcap=config.optional_positive("final_logit_softcapping", None),
        layer_embeds=LayerEmbeds(vocabulary, size) if size else None,
    )


def layer_weights(shape: ModelShape, number: int) -> dict[str, Sources]:
    own = {
        **usual_layer(shape, number),
        "attention_out_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
        "embeds.gate": "per_layer_input_gate",
        "embeds.projection": "per_layer_projection",
        "embeds.norm": "post_per_layer_input_norm",
        "end": "",
    }
    if shape.experts is None:
        return own
    of = "experts.*"
    return {
        **own,
        "router_norm": "router.scale",
        "experts.router": "router.proj",
        "experts.scales": "router",
        "experts_norm": "pre_feedforward_layernorm_2",
        "dense_out_norm": "post_feedforward_layernorm_1",
        "experts_out_norm": "post_feedforward_layernorm_2",
        "experts.gate_up.layers.*": (
            Rows(f"{of}.gate", shape.experts.intermediate),
            Rows(f"{of}.up", shape.experts.intermediate),
        ),
        "experts.down.layers.*": f"{of}.down",
    }


def weights(shape: ModelShape) -> WeightMap:
    special: dict[int, dict[str, Sources]] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    ignored: list[str] = []
    for number, layer in enumerate(shape.layers):
        at = f"model.layers.{number}"
        special[number] = layer_weights(shape, number)
        aliases[f"{at}.router.scale"] = (f"{at}.router.scale.weight",)
        if layer.attention.keys_of is not None:
            ignored += [f"{at}.self_attn.{name}." for name in PROJECTIONS]
        elif layer.values_are_keys:
            for kind in ("weight", "bias"):
                keys, values = (f"{at}.self_attn.{name}.{kind}" for name in ("k_proj", "v_proj"))
                aliases[keys] = (keys, values)
    top = {
        **TOP,
        "token_embeds.table": "model.embed_tokens_per_layer",
        "token_embeds.projection": "model.per_layer_model_projection",
        "token_embeds.norm": "model.per_layer_projection_norm",
    }
    stacks = {
        "experts.gate_up_proj": Stack(("experts.*.gate.weight", "experts.*.up.weight")),
        "experts.down_proj": Stack(("experts.*.down.weight",)),
    }
    return WeightMap({}, top, special, (), tuple(ignored), stacks, aliases)


FAMILY = Family(read_shape, Gemma4Decoder, weights, (*TRAINING, "hidden_act"))
