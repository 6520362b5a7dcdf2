"""What a runner does once: choose the dtype, plan the memory, load the weights, time each phase. Knows no step."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import nn

from ramet.kernels import reference
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.cpu.weights import pack, pack_int8
from ramet.kernels.reference_weights import Int8Weight
from ramet.runtime.cache.pool import bytes_per_token
from ramet.runtime.config import Args
from ramet.runtime.engine.backends import compiled_library, float32_is_faster
from ramet.runtime.engine.batch import Batch, SamplingColumns
from ramet.runtime.engine.device import available_bytes
from ramet.runtime.engine.memory import MemoryPlan, Needs, activation_bytes, default_share, plan_memory
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import Embedding, Linear, Packer, pack_linears
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import family_of
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.sampling.penalties import state_bytes
from ramet.runtime.weights.files import load_weights
from ramet.runtime.weights.random import fill_random

log = logging.getLogger("ramet")

Report = Callable[[str, float], None]  # (start-up phase, seconds)
UNCHUNKED_TOKENS = 8192  # assumed size of a step when --chunked-prefill-size is -1


def dtype_name(args: Args, shape: ModelShape, device: torch.device) -> str:
    """By default the checkpoint's: kernels of ours widen it in registers where that is faster."""
    if args.model.dtype != "auto":
        return args.model.dtype
    if shape.dtype == "float32" or device.type != "cpu" or compiled_library() is not None:
        return shape.dtype
    if not float32_is_faster(getattr(torch, shape.dtype)):
        return shape.dtype
    log.warning("--dtype auto is float32 instead of %s, in which torch is slower on this CPU", shape.dtype)
    return "float32"


def plan_of(args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> MemoryPlan:
    with torch.device("meta"):
        skeleton = family_of(shape.architecture).decoder(shape, dtype, reference)
    weights = weight_bytes(skeleton, dtype, args.model.quantization)
    chunk = args.schedule.chunked_prefill_size
    asked = args.model.context_length or shape.context_length
    if asked > shape.context_length:
        raise ConfigError(f"--context-length is {asked}, must be at most the model's {shape.context_length}")
    needs = Needs(
        weights=weights,
        bytes_per_token=bytes_per_token(shape.num_layers, shape.kv_heads, shape.head_dim, dtype.itemsize),
        max_running=args.max_running,
        context_length=asked,
        page_size=args.cache.page_size,
        activations=activation_bytes(
            tokens=(UNCHUNKED_TOKENS if chunk < 0 else chunk) + args.max_running,
            draws=args.max_running,
            hidden=shape.hidden,
            qkv=shape.query_size + 2 * shape.kv_size,
            intermediate=shape.intermediate,
            vocab_size=shape.vocab_size,
            dtype_bytes=dtype.itemsize,
        ),
        penalties=state_bytes(args.max_penalised + 1, shape.vocab_size),
        max_total_tokens=args.cache.max_total_tokens,
    )
    available = available_bytes(device)
    share = args.cache.mem_fraction_static or default_share(weights, available, device.type == "cpu")
    return plan_memory(needs, available, share)


def weight_bytes(model: nn.Module, dtype: torch.dtype, quantization: str | None) -> int:
    """Of all parameters, as they are once they are packed."""
    total = 0
    for module in model.modules():
        size = (
            1
            if quantization == "int8" and isinstance(module, Linear | Embedding) and module.is_read_whole
            else dtype.itemsize
        )
        total += sum(parameter.numel() for parameter in module.parameters(recurse=False)) * size
    return total


def load_model(args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device, ops: Ops) -> Decoder:
    """Built without initialisation, then filled; packed last, so that the plain weights are gone when it returns."""
    with torch.device(device):
        model = family_of(shape.architecture).decoder(shape, dtype, ops)
    if args.model.load_format == "dummy":
        fill_random(model, args.schedule.random_seed or 0)
    else:
        load_weights(model, args.model_folder)
    packer = choose_packer(args.model.quantization, ops)
    if packer is not None:
        pack_linears(model, packer)
    return model


def choose_packer(quantization: str | None, ops: Ops) -> Packer | None:
    """None: weights stay plain."""
    if quantization == "int8":
        return partial(pack_int8, ops) if isinstance(ops, CpuOps) else Int8Weight.of
    return partial(pack, ops) if isinstance(ops, CpuOps) else None


def padding_batch(start: int, num_new: int) -> Batch:
    """Tokens [start, start + num_new) of the padding row, all of them into slot 0."""
    zeros = np.zeros(num_new, np.int32)
    return Batch(
        rows=np.zeros(1, np.int32),
        num_new=np.array([num_new], np.int32),
        seq_lens=np.array([start + num_new], np.int32),
        token_ids=zeros,
        positions=np.arange(start, start + num_new, dtype=np.int32),
        slots=zeros,
        num_decode=int(num_new == 1),
        draws=np.zeros(1, np.int32),
        sampling=SamplingColumns.greedy(1),
        only_decodes=num_new == 1,
    )


@contextmanager
def phase(report: Report, name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    report(name, time.perf_counter() - started)
