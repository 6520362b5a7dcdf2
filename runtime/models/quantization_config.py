"""`quantization_config` of config.json: AWQ (Lin et al. 2023), GPTQ (Frantar et al. 2022), compressed-tensors, float8,
MXFP4.

Decides which checkpoints are served, and whether linear layers keep their form or are widened: AWQ and GPTQ in 4 bits
and in the layouts that AutoAWQ calls gemm and AutoGPTQ and GPTQModel write. Which layers are quantised the tensors
say, not the config.
"""

from ramet.runtime.models.compressed_config import read_block, read_compressed
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.shape import CheckpointQuantization

NAME = "quantization_config"
METHODS = ("awq", "gptq", "compressed-tensors", "fp8", "mxfp4")
WHOLE_OUTPUT = -1

# How it was made, and how a library runs it. Layers that stay plain are known by their tensors, and the order of inputs
# by g_idx.
HARMLESS = (
    "act_group_aware", "activation_scheme", "backend", "batch_size", "block_name_to_quantize", "cache_block_outputs",
    "damp_auto_increment", "damp_percent", "dataset", "desc_act", "do_fuse", "exllama_config", "fmt",
    "fuse_max_seq_len", "lm_head", "max_input_length", "meta", "model_file_base_name", "model_name_or_path",
    "model_seqlen", "module_name_preceding_first_block", "modules_in_block_to_quantize", "modules_to_fuse",
    "modules_to_not_convert", "mse", "offload_to_disk", "pad_token_id", "quantizer", "scale_fmt", "static_groups",
    "tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama",
)  # fmt: skip


def read_quantization(config: ConfigObject) -> CheckpointQuantization | None:
    """None where all weights are plain. Raises ConfigError that names the key."""
    inner = config.object(NAME)
    if inner.is_empty:
        return None
    for name in HARMLESS:
        inner.get(name)
    method = inner.choice(("quant_method",), METHODS, "")
    if not method:
        raise inner.error("quant_method", f"must be one of {', '.join(METHODS)}")
    if method == "mxfp4":
        return CheckpointQuantization(method, kept=None)
    if method == "fp8":
        return CheckpointQuantization(method, kept=None, block=read_block(inner, "weight_block_size"))
    if method == "compressed-tensors":
        return read_compressed(inner)
    if inner.count("bits") != 4:
        raise inner.error("bits", "must be 4; for 8 bits take the plain checkpoint and --quantization int8")
    return _awq(inner) if method == "awq" else _gptq(inner)


def _awq(inner: ConfigObject) -> CheckpointQuantization:
    inner.choice(("version",), ("gemm", "GEMM"), "gemm")
    if not inner.flag("zero_point", True):
        raise inner.error("zero_point", "must be true")
    return CheckpointQuantization("awq", "int4", _group_size(inner))


def _gptq(inner: ConfigObject) -> CheckpointQuantization:
    form = inner.choice(("checkpoint_format", "format"), ("gptq", "gptq_v2"), "gptq")
    inner.choice(("pack_dtype",), ("int32",), "int32")
    symmetric = inner.flag("sym", True)
    return CheckpointQuantization("gptq", "int4", _group_size(inner), symmetric, zeros_less_one=form == "gptq")


def _group_size(inner: ConfigObject) -> int | None:
    if inner.get("group_size") == WHOLE_OUTPUT:
        return None
    size = inner.count("group_size", 128)
    if size % 32:
        raise inner.error("group_size", f"must be {WHOLE_OUTPUT} or a multiple of 32")
    return size
