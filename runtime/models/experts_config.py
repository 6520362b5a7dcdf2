"""What config.json says about experts, in the spellings that families have for it."""

from ramet.kernels.reference_experts import RouteRule
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.shape import ExpertsShape

TRAINING = ("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
COUNTS = ("num_experts", "num_local_experts")  # of one thing, from one release of transformers to the next


def read_experts(
    config: ConfigObject, *, num: int, per_token: int, intermediate: int, normalise: bool | None
) -> ExpertsShape:
    """The defaults are those of the family's class. `normalise`: always or never; None: the file says it."""
    named = next((name for name in COUNTS if config.get(name) is not None), COUNTS[0])
    num = config.count(named, num)
    chosen = config.count("num_experts_per_tok", per_token)
    if chosen > num:
        raise config.error("num_experts_per_tok", f"must be at most {named} ({num})")
    if normalise is None:
        normalise = config.flag("norm_topk_prob", False)
    return ExpertsShape(num, intermediate, RouteRule(chosen, normalise))


def read_dense_layers(config: ConfigObject, num_layers: int) -> frozenset[int]:
    """Those without experts: `mlp_only_layers`, and all but every `decoder_sparse_step`-th."""
    step, named = config.count("decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    if not isinstance(named, list) or not all(isinstance(each, int) and not isinstance(each, bool) for each in named):
        raise config.error("mlp_only_layers", "must be a list of layers' numbers")
    return frozenset(i for i in range(num_layers) if (i + 1) % step or i in named)
