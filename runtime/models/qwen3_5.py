"""The text decoder of Qwen3.5 and those after it (Qwen Team 2026): Qwen3-Next's layers, dense, with other projections.

Positions of text are the same in every section of a rope's. Checkpoints of the text alone have the prefixes of
composites, too.
"""

from dataclasses import replace

from ramet.runtime.models import qwen3_next
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.family import Family
from ramet.runtime.models.qwen3_next import delta_of, hybrid_layer, read_hybrid
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.weight_map import TOP, Rows, WeightMap

DEFAULTS = replace(
    qwen3_next.DEFAULTS,
    vocab_size=248320,
    hidden_size=4096,
    intermediate_size=12288,
    num_hidden_layers=32,
    num_key_value_heads=4,
)
HARMLESS = (
    *qwen3_next.HARMLESS, "mrope_section", "mrope_interleaved", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
)  # fmt: skip
RENAMED = (("model.language_model.", "model."),)
TOWER = ("model.visual.",)


def read_shape(config: ConfigObject) -> ModelShape:
    return read_hybrid(config, DEFAULTS, lambda _: None)


def weights(shape: ModelShape) -> WeightMap:
    layer, of = hybrid_layer(shape), delta_of(shape)
    if of is not None:
        layer["attention.project"] = (
            Rows("linear_attn.in_proj_qkv", of.channels),
            Rows("linear_attn.in_proj_z", of.values),
        )
        layer["attention.gates"] = (
            Rows("linear_attn.in_proj_b", of.value_heads),
            Rows("linear_attn.in_proj_a", of.value_heads),
        )
    return WeightMap(layer, TOP, renamed=RENAMED, ignored=(*qwen3_next.IGNORED, *TOWER))


FAMILY = Family(read_shape, weights=weights, harmless=HARMLESS)
