"""The text decoder of Qwen2-VL and Qwen2.5-VL (Wang et al. 2024, Bai et al. 2025): Qwen2's, whose rope turns by time,
height and width.

They are published beside a vision tower, with the decoder's keys on top of the config; newer files have them in
text_config. The tensors of the tower are not the decoder's.
"""

from collections.abc import Callable
from dataclasses import replace

from ramet.runtime.layers.rope import RopeShape
from ramet.runtime.models import qwen2
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import Sizes, read_decoder, read_dtype
from ramet.runtime.models.family import Family
from ramet.runtime.models.rope_config import KINDS, RopeDefaults, read_rope
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.weight_map import WeightMap, usual_weights

DEFAULTS = replace(
    qwen2.DEFAULTS,
    vocab_size=152064,
    hidden_size=8192,
    intermediate_size=29568,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    rms_norm_eps=1e-5,
)
THETA, SECTIONS = 1e6, (16, 24, 24)
HARMLESS = (
    "mrope_interleaved", "image_token_id", "video_token_id", "vision_config", "vision_start_token_id",
    "vision_end_token_id", "vision_token_id",
)  # fmt: skip
RENAMED = (("model.language_model.", "model."), ("language_model.", "model."))
TOWER = ("visual.", "model.visual.")


def read_axes_rope(config: ConfigObject, sizes: Sizes, theta: float, sections: tuple[int, ...]) -> RopeShape:
    """`sections` that the class has by default, of heads that are as large as they were made for."""
    kinds = (*KINDS, "mrope")  # which older files have for one that is not stretched
    return read_rope(config, sizes.head_dim, sizes.context, RopeDefaults(theta, kinds=kinds, sections=sections))


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    rope = read_axes_rope(config, sizes, THETA, SECTIONS)
    return qwen2.read_layers(config, sizes, rope, usual_full=DEFAULTS.num_hidden_layers)


def read_composite(config: ConfigObject, read: Callable[[ConfigObject], ModelShape]) -> ModelShape:
    """The decoder, from text_config, if it is there: what is said of it on top counts for nothing then."""
    inner = config.object("text_config")
    if inner.is_empty:
        return read(config)
    shape, dtype = read(inner), read_dtype(inner, read_dtype(config, "float32"))
    tied = config.flag("tie_word_embeddings", False) or shape.tied_head
    for name in inner.understood:
        config.get(name)
    return replace(shape, tied_head=tied, dtype=dtype)


def read_text(config: ConfigObject) -> ModelShape:
    return replace(read_decoder(config, DEFAULTS, read_layers), qkv_bias=True)


def read_shape(config: ConfigObject) -> ModelShape:
    return read_composite(config, read_text)


def weights(shape: ModelShape) -> WeightMap:
    return replace(usual_weights(shape), renamed=RENAMED, ignored=TOWER)


FAMILY = Family(read_shape, weights=weights, harmless=HARMLESS)
