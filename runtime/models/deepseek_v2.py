"""DeepSeek-V2 and V2-Lite (2024): attention to latents, experts by softmax, of the best groups in the large one."""

from dataclasses import replace

from ramet.runtime.layers.experts import ExpertsShape
from ramet.runtime.models import llama
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import Sizes
from ramet.runtime.models.experts_config import TRAINING, check_groups, read_experts
from ramet.runtime.models.family import Family
from ramet.runtime.models.latent_config import latent_layers, latent_weights, read_latent_shape
from ramet.runtime.models.shape import LayerShape, ModelShape

DEFAULTS = replace(llama.DEFAULTS, vocab_size=102400, head_dim=64)
HARMLESS = (*TRAINING, "aux_loss_alpha", "ep_size", "seq_aux")
GREEDY, OF_GROUPS = "greedy", "group_limited_greedy"


def _read_experts(config: ConfigObject) -> ExpertsShape:
    config.choice(("scoring_func",), ("softmax",), "softmax")
    if config.flag("norm_topk_prob", False):
        raise config.error("norm_topk_prob", "must be false: the class does not divide weights by their sum")
    intermediate = config.count("moe_intermediate_size", 1407)
    # the class has no default for it; all published files say 6
    of = read_experts(config, num=64, per_token=6, intermediate=intermediate, normalise=False)
    rule = replace(of.rule, scale=config.positive("routed_scaling_factor", 1.0))
    if config.choice(("topk_method",), (GREEDY, OF_GROUPS), GREEDY) == OF_GROUPS:
        groups, kept = config.count("n_group"), config.count("topk_group")
        check_groups(config, of, groups, kept)
        rule = replace(rule, groups=groups, kept_groups=kept, of_group=1)
    else:
        config.get("n_group"), config.get("topk_group")
    shared = config.count("n_shared_experts", 2, least=0) * intermediate
    return replace(of, rule=rule, shared_intermediate=shared)


def read_layers(config: ConfigObject, sizes: Sizes) -> tuple[LayerShape, ...]:
    return latent_layers(config, sizes, _read_experts(config), first_dense=0)


def read_shape(config: ConfigObject) -> ModelShape:
    return replace(read_latent_shape(config, DEFAULTS, read_layers), mlp_bias=config.flag("mlp_bias", False))


FAMILY = Family(read_shape, weights=latent_weights, harmless=HARMLESS)
