"""The part of config.json that all decoder families read alike, with the defaults that each family's class has.

Files leave out what equals their class's default (a published Gemma 3 has no `num_attention_heads`), so the defaults
are a family's own, never global ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.layers.rope import RopeShape
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.rope_config import read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape

DTYPES = ("float32", "bfloat16", "float16")
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")
FULL, SLIDING = "full_attention", "sliding_attention"  # as `layer_types` spells them


@dataclass(frozen=True, slots=True)
class FamilyDefaults:
    """Of a family's class: what an absent key means."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None  # None: as many as heads
    max_position_embeddings: int
    head_dim: int | None = None  # None: hidden_size / num_attention_heads
    rms_norm_eps: float = 1e-6
    activation: tuple[str, str] = ("hidden_act", "silu")  # key, default
    tie_word_embeddings: bool = False
    rope_extends: bool = True  # a linear rope stretches max_position_embeddings; False: that is the stretched length


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the reading of layers may need."""

    num_layers: int
    head_dim: int
    context: int


ReadLayers = Callable[[ConfigObject, Sizes], tuple[LayerShape, ...]]


def read_decoder(config: ConfigObject, defaults: FamilyDefaults, read_layers: ReadLayers) -> ModelShape:
    """Everything but biases and what is special to a family."""
    hidden = config.count("hidden_size", defaults.hidden_size)
    heads = config.count("num_attention_heads", defaults.num_attention_heads)
    head_dim = config.optional_count("head_dim", defaults.head_dim)
    if head_dim is None and hidden % heads:
        raise config.error(
            "hidden_size", f"must be a multiple of num_attention_heads ({heads}), as there is no head_dim"
        )
    kv_heads = config.optional_count("num_key_value_heads", defaults.num_key_value_heads) or heads
    if heads % kv_heads:
        raise config.error("num_attention_heads", f"must be a multiple of {kv_heads} (key/value heads)")
    sizes = Sizes(
        config.count("num_hidden_layers", defaults.num_hidden_layers),
        head_dim or hidden // heads,
        config.count("max_position_embeddings", defaults.max_position_embeddings),
    )
    activation, usual = defaults.activation
    layers = read_layers(config, sizes)
    return ModelShape(
        architecture=config.architecture,
        vocab_size=config.count("vocab_size", defaults.vocab_size),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=sizes.head_dim,
        intermediate=config.count("intermediate_size", defaults.intermediate_size),
        context_length=_extended(sizes.context, layers[0].rope) if defaults.rope_extends else sizes.context,
        rms_eps=config.positive("rms_norm_eps", defaults.rms_norm_eps),
        activation=config.choice((activation,), ACTIVATIONS, usual),
        layers=layers,
        tied_head=config.flag("tie_word_embeddings", defaults.tie_word_embeddings),
        dtype=read_dtype(config, "float32"),
    )


def read_dtype(config: ConfigObject, usual: str) -> str:
    return config.choice(("dtype", "torch_dtype"), DTYPES, usual)


def plain_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    """Every layer sees every key."""
    rope = read_rope(config, sizes.head_dim, sizes.context)
    return (LayerShape(LayerAttention(sizes.head_dim**-0.5), rope),) * sizes.num_layers


def read_layer_types(config: ConfigObject, num_layers: int, slides: Callable[[int], bool]) -> tuple[str, ...]:
    """`layer_types`, or what `slides` says of each layer's index: whether it usually has a window."""
    types = config.get("layer_types")
    if types is None:
        return tuple(SLIDING if slides(i) else FULL for i in range(num_layers))
    if not isinstance(types, list) or len(types) != num_layers or not all(each in (FULL, SLIDING) for each in types):
        raise config.error("layer_types", f"must be a list of {num_layers} times {FULL} or {SLIDING}")
    return tuple(types)


def read_windows(
    config: ConfigObject, num_layers: int, usual: int, slides: Callable[[int], bool]
) -> tuple[int | None, ...]:
    """Of each layer the window, None where it sees every key. `usual`: where the file does not say how large it is."""
    window = config.optional_count("sliding_window", usual)
    types = read_layer_types(config, num_layers, slides)
    if window is None and SLIDING in types:
        raise config.error("sliding_window", f"must be an integer >= 1, as layer_types has {SLIDING}")
    return tuple(window if kind == SLIDING else None for kind in types)


def read_asked_windows(config: ConfigObject, num_layers: int, slides: Callable[[int], bool]) -> tuple[int | None, ...]:
    """As `read_windows`; only with `use_sliding_window` has any layer one."""
    if config.flag("use_sliding_window", False):
        return read_windows(config, num_layers, 4096, slides)
    config.get("sliding_window")  # 0 in some files
    if SLIDING in read_layer_types(config, num_layers, lambda _: False):
        raise config.error("layer_types", f"which needs use_sliding_window for {SLIDING}")
    return (None,) * num_layers


def _extended(context: int, rope: RopeShape) -> int:
    """A file may stretch its rope and keep the trained length in max_position_embeddings (Vicuna 16k, Qwen2.5)."""
    stretches = rope.kind in ("linear", "yarn") and rope.original_context == context
    return int(context * rope.factor) if stretches else context
