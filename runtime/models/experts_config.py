"""What config.json says about experts, in the spellings that families have for it."""

from dataclasses import replace

from ramet.kernels.reference_experts import SIGMOID, RouteRule
from ramet.runtime.layers.experts import ExpertsShape
from ramet.runtime.models.config_json import ConfigObject

TRAINING = ("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
# of one thing, from one release of transformers to the next
COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")


def read_experts(
    config: ConfigObject,
    *,
    num: int,
    per_token: int,
    intermediate: int,
    normalise: bool | None,
    usual: bool = False,
) -> ExpertsShape:
    """Defaults are those of the family's class. `normalise`: always or never; None: the file says it, or `usual`."""
    named = next((name for name in COUNTS if config.get(name) is not None), COUNTS[0])
    num = config.count(named, num)
    chosen = config.count("num_experts_per_tok", per_token)
    if chosen > num:
        raise config.error("num_experts_per_tok", f"must be at most {named} ({num})")
    if normalise is None:
        normalise = config.flag("norm_topk_prob", usual)
    return ExpertsShape(num, intermediate, RouteRule(chosen, normalise))


def read_shared_experts(
    config: ConfigObject,
    sizes: tuple[int, int],
    *,
    num: int,
    per_token: int,
    normalise: bool | None,
    usual: bool = False,
) -> ExpertsShape:
    """As `read_experts`, beside one with a gate that every token has. `sizes`: the usual ones, of each and of that."""
    size = config.count("moe_intermediate_size", sizes[0])
    of = read_experts(config, num=num, per_token=per_token, intermediate=size, normalise=normalise, usual=usual)
    return replace(of, shared_intermediate=config.count("shared_expert_intermediate_size", sizes[1]), shared_gate=True)


def read_biased_experts(
    config: ConfigObject, *, num: int, per_token: int, intermediate: int, groups: int, kept_groups: int, scale: float
) -> ExpertsShape:
    """DeepSeek-V3's routing: sigmoids, a bias that balances experts, groups of them, and some for every token."""
    of = read_experts(config, num=num, per_token=per_token, intermediate=intermediate, normalise=None, usual=True)
    groups, kept = config.count("n_group", groups), config.count("topk_group", kept_groups)
    check_groups(config, of, groups, kept)
    scale = config.positive("routed_scaling_factor", scale)
    rule = replace(of.rule, scores=SIGMOID, groups=groups, kept_groups=kept, scale=scale)
    shared = config.count("n_shared_experts", 1, least=0) * intermediate
    return replace(of, rule=rule, shared_intermediate=shared, choice_bias=True)


def check_groups(config: ConfigObject, of: ExpertsShape, groups: int, kept: int) -> None:
    if of.num % groups:
        raise config.error("n_group", f"must divide the number of experts ({of.num})")
    if kept > groups or of.num // groups * kept < of.rule.per_token:
        raise config.error("topk_group", f"must be at most n_group ({groups}), and leave enough experts")


def read_dense_layers(config: ConfigObject, num_layers: int) -> frozenset[int]:
    """Those without experts: `mlp_only_layers`, and all but every `decoder_sparse_step`-th."""
    step, named = config.count("decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    if not isinstance(named, list) or not all(isinstance(each, int) and not isinstance(each, bool) for each in named):
        raise config.error("mlp_only_layers", "must be a list of layers' numbers")
    return frozenset(i for i in range(num_layers) if (i + 1) % step or i in named)
