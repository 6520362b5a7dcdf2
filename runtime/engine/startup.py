"""What a runner does once: choose the dtype, plan the memory, load the weights, time each phase. Knows no step."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ramet.kernels import reference
from ramet.runtime.cache.pool import bytes_per_token
from ramet.runtime.config import Args
from ramet.runtime.engine.backends import compiled_library, float32_is_faster
from ramet.runtime.engine.batch import Batch, SamplingColumns
from ramet.runtime.engine.device import available_bytes
from ramet.runtime.engine.memory import MemoryPlan, Needs, activation_bytes, default_share, plan_memory
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import family_of
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.sampling.penalties import state_bytes
from ramet.runtime.weights.files import load_weights
from ramet.runtime.weights.kept import KeptWeights
from ramet.runtime.weights.packing import FORMS, form_of, pack_model, weight_bytes, words_packer
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


def cache_dtype(args: Args, dtype: torch.dtype) -> torch.dtype:
    """Of keys and values, for a model of `dtype`."""
    return torch.int8 if args.cache.kv_cache_dtype == "int8" else dtype


def plan_of(args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> MemoryPlan:
    with torch.device("meta"):
        skeleton = family_of(shape.architecture).decoder(shape, dtype, reference)
    weights = weight_bytes(skeleton, dtype, form_of(args.model.quantization, shape.quantization))
    chunk = args.schedule.chunked_prefill_size
    asked = args.model.context_length or shape.context_length
    if asked > shape.context_length:
        raise ConfigError(f"--context-length is {asked}, must be at most the model's {shape.context_length}")
    needs = Needs(
        weights=weights,
        bytes_per_token=bytes_per_token(shape.num_layers, shape.kv_heads, shape.head_dim, cache_dtype(args, dtype)),
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


def load_model(args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device, ops: Ops) -> Decoder:
    """From the weights that an earlier start has packed and kept, or from the checkpoint."""
    kept = KeptWeights.of(args.model, args.model_folder, dtype, ops) if isinstance(ops, CpuOps) else None
    if kept is not None:
        with torch.device("meta"):
            model = family_of(shape.architecture).decoder(shape, dtype, ops)
        if kept.fill(model):
            return model
    model = _load_and_pack(args, shape, dtype, device, ops)
    if kept is not None and kept.keep(model):
        kept.fill(model)  # all in one place on huge pages: that is read faster, and others share it
    return model


def _load_and_pack(args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device, ops: Ops) -> Decoder:
    """Built without initialisation, then filled; packed last, so that the plain weights are gone when it returns."""
    with torch.device(device):
        model = family_of(shape.architecture).decoder(shape, dtype, ops)
    form = form_of(args.model.quantization, shape.quantization)
    if args.model.load_format == "dummy":
        fill_random(model, args.schedule.random_seed or 0)
    else:
        load_weights(model, args.model_folder, words_packer(ops))
        form = FORMS[None] if shape.quantization is not None else form  # what the checkpoint has plain stays so
    pack_model(model, form, ops)
    return model


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
