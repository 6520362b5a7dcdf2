"""Gemma 3's text decoder (Gemma Team 2025): Gemma 2's block with norms on queries and keys, a rope of its own for the
layers with a window (five of six), and no cap on scores.
"""

from dataclasses import replace

from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.layers.rope import RopeShape
from ramet.runtime.models import gemma2
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FULL, SLIDING, Sizes, read_windows
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import rope_of
from ramet.runtime.models.sandwich import SandwichDecoder
from ramet.runtime.models.shape import LayerShape, ModelShape

DEFAULTS = replace(gemma2.DEFAULTS, vocab_size=262208, max_position_embeddings=131072, rope_extends=False)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    pattern = config.count("sliding_window_pattern", 6)  # how files said it before they had layer_types
    windows = read_windows(config, sizes.num_layers, 4096, lambda i: (i + 1) % pattern != 0)
    scale = config.positive("query_pre_attn_scalar", 256) ** -0.5
    ropes = read_ropes(config, sizes)
    return tuple(
        LayerShape(LayerAttention(scale, window), ropes[SLIDING if window else FULL], qk_norm=True)
        for window in windows
    )


def read_ropes(config: ConfigObject, sizes: Sizes) -> dict[str, RopeShape]:
    """Older files say it in three keys, newer ones in an object for each type of layer, which wins over the keys.

    `rope_scaling` stretches the layers without a window alone.
    """
    objects, scaling = config.object("rope_parameters"), config.object("rope_scaling")
    full, sliding = objects.object(FULL), objects.object(SLIDING)
    if not scaling.is_empty and not full.is_empty:
        raise config.error("rope_scaling", f"but rope_parameters has {FULL} as well: remove one of them")
    theta, local_theta = config.positive("rope_theta", 1e6), config.positive("rope_local_base_freq", 1e4)
    return {
        FULL: rope_of(full if scaling.is_empty else scaling, sizes.head_dim, sizes.context, theta),
        SLIDING: rope_of(sliding, sizes.head_dim, sizes.context, local_theta),
    }


def read_shape(config: ConfigObject) -> ModelShape:
    return gemma2.read_gemma(config, DEFAULTS, read_layers, usual_cap=None)


FAMILY = Family(read_shape, SandwichDecoder, gemma2.weights, ("hidden_act",))
