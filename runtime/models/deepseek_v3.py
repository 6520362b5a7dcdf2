"""DeepSeek-V3 and R1 (2024): attention to latents, experts by sigmoids, a bias and groups.

Layers that predict further tokens are left out.
"""

from dataclasses import replace

from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import FamilyDefaults, Sizes
from ramet.runtime.models.experts_config import TRAINING, read_biased_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.latent_config import latent_layers, latent_weights, read_latent_shape
from ramet.runtime.models.shape import LayerShape, ModelShape

DEFAULTS = FamilyDefaults(
    vocab_size=129280,
    hidden_size=7168,
    intermediate_size=18432,
    num_hidden_layers=61,
    num_attention_heads=128,
    num_key_value_heads=128,
    max_position_embeddings=4096,
    head_dim=64,
)
HARMLESS = (*TRAINING, "aux_loss_alpha", "ep_size", "num_mtp_layers", "num_nextn_predict_layers", "seq_aux")


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    config.choice(("topk_method",), ("noaux_tc",), "noaux_tc")
    config.choice(("scoring_func",), ("sigmoid",), "sigmoid")
    experts = read_biased_experts(
        config, num=256, per_token=8, intermediate=config.count("moe_intermediate_size", 2048), groups=8,
        kept_groups=4, scale=2.5,
    )  # fmt: skip
    return latent_layers(config, sizes, experts, first_dense=3)


def read_shape(config: ConfigObject) -> ModelShape:
    shape = read_latent_shape(config, DEFAULTS, read_layers)
    assert shape.latent is not None, "the family has latents"
    return replace(shape, latent=replace(shape.latent, in_pairs=config.flag("rope_interleave", True)))


FAMILY = Family(read_shape, weights=latent_weights, harmless=HARMLESS)
