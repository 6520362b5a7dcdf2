"""`quantization_config` as compressed-tensors writes it: groups of modules, each with its form of weights and inputs.

Decides which forms are served. Which modules belong to a group the tensors say.
"""

from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.shape import CheckpointQuantization

FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision", "dense")
STRATEGIES = ("tensor", "channel", "group", "block")
MAX_BITS = 8
# How it was made. Cached keys and values are kept as --kv-cache-dtype says.
HARMLESS = ("global_compression_ratio", "ignore", "kv_cache_scheme", "quantization_status", "version")
HARMLESS_IN_GROUP = ("input_activations", "output_activations", "targets")
HARMLESS_IN_WEIGHTS = ("actorder", "dynamic", "group_size", "observer", "observer_kwargs", "scale_dtype", "zp_dtype")


def read_compressed(config: ConfigObject) -> CheckpointQuantization:
    """Raises ConfigError that names the key."""
    for name in HARMLESS:
        config.get(name)
    config.choice(("format",), FORMATS, "dense")
    sparsity = config.object("sparsity_config")
    sparsity.choice(("format",), ("dense",), "dense")
    groups = config.object("config_groups")
    if groups.is_empty:
        raise config.error("config_groups", "must have a group: nothing is quantised")
    forms = [_read_group(groups.object(name)) for name in groups.names()]
    kept = {form.kept for form in forms}
    return CheckpointQuantization(
        "compressed-tensors",
        kept.pop() if len(kept) == 1 else None,
        group_size=next((form.group_size for form in forms), None),
        bits=tuple(dict.fromkeys(bits for form in forms for bits in form.bits)),
        block=next((form.block for form in forms if form.block is not None), None),
        weight_only=all(form.weight_only for form in forms),
    )


def _read_group(group: ConfigObject) -> CheckpointQuantization:
    weights = group.object("weights")
    for name in HARMLESS_IN_GROUP:
        group.get(name)
    for name in HARMLESS_IN_WEIGHTS:
        weights.get(name)
    form = group.choice(("format",), FORMATS, "")
    if weights.is_empty:
        raise group.error("weights", "must be an object: which form they have")
    is_int = weights.choice(("type",), ("int", "float"), "int") == "int"
    bits, strategy = weights.count("num_bits"), weights.choice(("strategy",), STRATEGIES, "tensor")
    if bits > MAX_BITS or not (is_int or bits == MAX_BITS):
        raise weights.error("num_bits", f"must be {f'from 1 to {MAX_BITS}' if is_int else MAX_BITS}")
    size = weights.count("group_size") if strategy == "group" else None
    is_symmetric = weights.flag("symmetric", True)
    kept = "int4" if is_int and bits == 4 and (size is None or size % 32 == 0) else None
    if is_int and bits == MAX_BITS and strategy in ("tensor", "channel") and form != "pack-quantized":
        kept = "int8" if is_symmetric else None
    return CheckpointQuantization(
        "compressed-tensors",
        kept,
        size,
        is_symmetric,
        bits=(bits,),
        block=read_block(weights, "block_structure"),
        weight_only=group.get("input_activations") is None,
    )


def read_block(config: ConfigObject, name: str) -> tuple[int, int] | None:
    """Outputs and inputs that share a scale; None where the key is absent or null."""
    value = config.get(name)
    if value is None:
        return None
    match value:
        case [int(num_out), int(num_in)] if num_out > 0 and num_in > 0:
            return num_out, num_in
    raise config.error(name, "must be a list of two integers >= 1")
