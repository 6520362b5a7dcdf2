"""What a runner does once: choose the dtype, plan the memory, load the weights, time each phase. Knows no step."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
import torch

from ramet.ipc.messages import RouteLayout
from ramet.kernels import reference
from ramet.runtime.attention.latent import expanded_bytes
from ramet.runtime.cache.pool import bytes_per_token
from ramet.runtime.cache.routes import RouteTable, bytes_of_token
from ramet.runtime.cache.state_pool import bytes_per_state
from ramet.runtime.config import Args
from ramet.runtime.engine.batch import Batch, Pending
from ramet.runtime.engine.devices.base import Device
from ramet.runtime.engine.memory import (
    MemoryPlan,
    Needs,
    activation_bytes,
    default_share,
    plan_memory,
    rows_with_states,
    snapshots_of,
)
from ramet.runtime.engine.step_cost import MAX_CHUNK, StepCost
from ramet.runtime.errors import ConfigError, card_advice, describe
from ramet.runtime.layers.experts import Experts
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import family_of, weights_of
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.towers.registry import has_tower
from ramet.runtime.models.transformers.implementation import skeleton_of
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.sampling.penalties import state_bytes
from ramet.runtime.weights.containers import opened
from ramet.runtime.weights.files import check_weights, linears_in_few_bits, load_weights
from ramet.runtime.weights.kept import KeptWeights
from ramet.runtime.weights.packing import FORMS, form_of, pack_model, weight_bytes
from ramet.runtime.weights.random import fill_random

log = logging.getLogger("ramet")

Report = Callable[[str, float], None]  # (start-up phase, seconds)
UNCHUNKED_TOKENS = 8192  # assumed size of a step when --chunked-prefill-size is -1
MIN_CONTEXT = 2  # a prompt's token and one of the output
MEASURED_TOKENS = (1, 8, 32, 128, 512, MAX_CHUNK)  # of steps whose cost is measured
MEASURE_S = 0.15  # once it has taken so long, no larger step is measured
BOUND_TOKENS = 32  # up to which steps are measured however long it takes, where --max-itl-ms asks for it
REPEATED_S = 0.05  # a shorter step runs twice, because the first one may allocate


def dtype_name(args: Args, shape: ModelShape, device: Device) -> str:
    """By default the checkpoint's: kernels of ours widen it in registers where that is faster."""
    if args.model.dtype != "auto":
        return args.model.dtype
    if shape.dtype == "float32" or device.computes(getattr(torch, shape.dtype)):
        return shape.dtype
    log.warning("--dtype auto is float32 instead of %s, in which torch is slower on this CPU", shape.dtype)
    return "float32"


def cache_dtype(args: Args, dtype: torch.dtype) -> torch.dtype:
    """Of keys and values, for a model of `dtype`."""
    return {"fp8": torch.float8_e4m3fn, "int8": torch.int8}.get(args.cache.kv_cache_dtype, dtype)


def check_options(args: Args, shape: ModelShape, device: Device) -> None:
    """Raises ConfigError for what does not go together, before anything is compiled or read."""
    form_of(args.model.quantization, shape.quantization)
    route_layout(args, shape)
    if shape.has_states and args.cache.prefix_cache == "list":
        raise ConfigError(
            f"--prefix-cache is list, which copies no states, and layers of a {shape.architecture} have them: use tree"
        )
    attention, cached = args.execute.attention_backend, args.cache.kv_cache_dtype
    device.check_attention(attention)
    if cached == "int8" and attention == "gather":
        raise ConfigError("--kv-cache-dtype is int8, which --attention-backend gather does not read; use auto")
    if cached != "auto" and shape.latent is not None:
        raise ConfigError(
            f"--kv-cache-dtype is {cached}, but a {shape.architecture} caches latents, which are kept in its dtype: "
            "use auto"
        )
    device.check_float8(args)


def route_layout(args: Args, shape: ModelShape) -> RouteLayout | None:
    """Of the experts that are kept of each token; None: --enable-return-routed-experts is off. Raises ConfigError."""
    if not args.execute.enable_return_routed_experts:
        return None
    if (of := shape.experts) is None:
        why = "is served through transformers, where they are not kept" if shape.of_transformers else "has no experts"
        raise ConfigError(f"--enable-return-routed-experts is on, but {shape.architecture} {why}; leave it out")
    return RouteLayout(shape.num_layers, shape.sparse, of.rule.per_token, of.num)


def keep_routes(model: torch.nn.Module, table: RouteTable) -> None:
    """Its layers of experts tell the table where every token goes."""
    layers = [layer for layer in model.modules() if isinstance(layer, Experts)]
    assert len(layers) == len(table.layout.sparse), (len(layers), table.layout)
    for index, layer in enumerate(layers):
        layer.on_routes = partial(table.store, index)


def plan_of(args: Args, shape: ModelShape, dtype: torch.dtype, device: Device) -> MemoryPlan:
    needs, available = needs_of(args, shape, dtype, device), device.available_bytes()
    return plan_memory(needs, available, _share(args, needs.weights, available, device))


def _share(args: Args, weights: int, available: int, device: Device) -> float:
    return args.cache.mem_fraction_static or default_share(weights, available, device.shares_memory)


def _in_few_bits(args: Args, shape: ModelShape, dtype: torch.dtype) -> set[str] | None:
    """The layers that keep a quantised checkpoint's bits; None: it has none, or is not or cannot be read."""
    if shape.quantization is None or shape.quantization.kept is None or dummy_seed(args) is not None:
        return None
    with torch.device("meta"), suppress(ConfigError):  # which loading says
        return linears_in_few_bits(family_of(shape.architecture).decoder(shape, dtype, reference), args.model_folder)
    return None


def _tower_bytes(args: Args, shape: ModelShape, dtype: torch.dtype) -> int:
    """Of what reads media; 0: there is nothing, or it is random."""
    if not has_tower(shape) or dummy_seed(args) is not None:
        return 0
    own = weights_of(shape).ignored
    with suppress(ConfigError):  # which loading says
        facts = opened(args.model_folder).facts()
        return sum(math.prod(each.shape) * dtype.itemsize for name, each in facts if name.startswith(own))
    return 0


def needs_of(args: Args, shape: ModelShape, dtype: torch.dtype, device: Device) -> Needs:
    form = form_of(args.model.quantization, shape.quantization)
    weights = weight_bytes(skeleton_of(shape, dtype, reference), dtype, form, _in_few_bits(args, shape, dtype))
    weights += _tower_bytes(args, shape, dtype)
    chunk = args.schedule.chunked_prefill_size or MAX_CHUNK
    asked = args.model.context_length or shape.context_length
    if asked > shape.context_length:
        raise ConfigError(f"--context-length is {asked}, must be at most the model's {shape.context_length}")
    if asked < MIN_CONTEXT:
        raise ConfigError(f"the model's context is {asked} tokens, must be at least {MIN_CONTEXT}")
    routes = route_layout(args, shape)
    cached = bytes_per_token(shape.kv_shapes, cache_dtype(args, dtype))
    expanded = 0
    if shape.latent is not None and device.expands_latents:
        expanded = expanded_bytes(asked, shape.heads, shape.latent, dtype.itemsize)
    max_running, of_state = args.max_running, bytes_per_state(shape.deltas, dtype)
    available = device.available_bytes() if of_state else 0
    room = int(available * _share(args, weights, available, device)) - weights if of_state else 0
    if of_state and args.schedule.max_running_requests is None:
        max_running = rows_with_states(max_running, room, of_state)
    asked_snapshots = 0 if args.cache.disable_radix_cache else args.cache.max_state_snapshots
    return Needs(
        weights=weights,
        bytes_per_token=cached + (0 if routes is None else bytes_of_token(routes)),
        max_running=max_running,
        context_length=asked,
        page_size=args.cache.page_size,
        activations=activation_bytes(
            tokens=(UNCHUNKED_TOKENS if chunk < 0 else chunk) + max_running,
            draws=max_running,
            hidden=shape.hidden,
            qkv=shape.attended_size,
            intermediate=shape.widest,
            vocab_size=shape.vocab_size,
            dtype_bytes=dtype.itemsize,
        )
        + expanded,
        penalties=state_bytes(args.max_penalised + 1, shape.vocab_size),
        state_bytes=of_state,
        num_snapshots=snapshots_of(asked_snapshots, max_running, room, of_state),
        max_total_tokens=args.cache.max_total_tokens,
        is_filled=args.schedule.max_itl_ms is not None,
    )


def dummy_seed(args: Args) -> int | None:
    """Of random weights; None: a checkpoint is read."""
    return (args.schedule.random_seed or 0) if args.model.load_format == "dummy" else None


def load_model(
    args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device, ops: Ops, *, mapped: bool
) -> tuple[CausalModel, Callable[[], None] | None]:
    """From the weights that an earlier start has packed and kept, or from the checkpoint; and then what keeps them.

    None: they are kept already, or are not to be. `mapped`: nothing is served yet that a file which becomes shorter
    could end.
    """
    if shape.of_transformers:
        return _load_of_transformers(args, shape, dtype, device, ops), None
    kept = KeptWeights.of(args.model, args.model_folder, dtype, ops)
    if kept is not None:
        with torch.device("meta"):
            model = family_of(shape.architecture).decoder(shape, dtype, ops)
        if kept.fill(model):
            log.info("weights as an earlier start has packed them: %s", kept.path)
            return model, None
    model = _load_and_pack(args, shape, dtype, device, ops, mapped)
    return model, None if kept is None else kept.writing(model)


def _load_and_pack(
    args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device, ops: Ops, mapped: bool
) -> Decoder:
    """Built without initialisation, then filled; packed last, so that the plain weights are gone when it returns.

    Files that do not fit are an error before memory is taken.
    """
    decoder = family_of(shape.architecture).decoder
    if args.model.load_format != "dummy":
        with torch.device("meta"):
            check_weights(decoder(shape, dtype, ops), args.model_folder)
    with torch.device(device):
        model = decoder(shape, dtype, ops)
    form = form_of(args.model.quantization, shape.quantization)
    seed = dummy_seed(args)
    if seed is not None:
        fill_random(model, seed)
    else:
        load_weights(model, args.model_folder, ops.packers.words, mapped=mapped)
        if shape.quantization is not None and shape.quantization.kept is not None:
            form = FORMS[None]  # what the checkpoint has plain stays so
    model.derive()
    pack_model(model, form, ops)
    return model


def _load_of_transformers(
    args: Args, shape: ModelShape, dtype: torch.dtype, device: torch.device, ops: Ops
) -> CausalModel:
    from ramet.runtime.models.transformers.build import loaded_model  # loads transformers

    is_random = args.model.load_format == "dummy"
    source = (args.schedule.random_seed or 0) if is_random else opened(args.model_folder, mapped=True).tensors(dtype)
    model = loaded_model(shape, dtype, device, ops, source)
    pack_model(model, form_of(args.model.quantization, shape.quantization), ops)
    model.check()
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


def padding_rows(num_rows: int) -> Batch:
    """A step that is not prepared, of that many rows, each of which is the padding row's first token."""
    zeros, ones = np.zeros(num_rows, np.int32), np.ones(num_rows, np.int32)
    return Batch(
        rows=zeros,
        num_new=ones,
        seq_lens=ones,
        token_ids=zeros,
        positions=zeros,
        slots=zeros,
        num_decode=num_rows,
        draws=np.arange(num_rows, dtype=np.int32),
        sampling=SamplingColumns.greedy(num_rows),
        only_decodes=False,
    )


def measure_cost(
    run: Callable[[Batch], Pending], shape: ModelShape, plan: MemoryPlan, *, bounded: bool, warm: bool
) -> StepCost:
    """What steps cost, by some of them in the padding row; see the constants. `bounded`: --max-itl-ms is set.

    `warm`: each runs once before, as libraries choose how they multiply when they first meet a size.

    Draws are measured. What is read of contexts is counted at the speed at which a step of one token reads the weights,
    and pairs at the speed at which the largest step multiplies.
    """
    points: list[tuple[int, float]] = []
    started = time.perf_counter()
    for num in MEASURED_TOKENS:
        is_long = time.perf_counter() - started > MEASURE_S and not (bounded and num <= BOUND_TOKENS)
        if points and (is_long or num >= plan.context_length):
            break
        if warm:
            run(padding_batch(0, num)).result()
        seconds = _timed(run, padding_batch(0, num))
        points.append((num, max(seconds, points[-1][1] if points else 0.0)))
    largest, largest_s = points[-1]
    rows = min(largest, BOUND_TOKENS, plan.needs.max_running)
    draw_s = 0.0
    if rows > 1:
        of_one_row = next(seconds for num, seconds in points if num >= rows)
        draw_s = max(0.0, _timed(run, padding_rows(rows)) - of_one_row) / (rows - 1)
        draw_s = min(draw_s, points[0][1] / 2)  # a disturbed measurement: a whole step of one row has more to do
    products = (2 * shape.query_size + 2 * shape.kv_size + 3 * shape.intermediate) * shape.hidden * shape.num_layers
    pair_products = 2 * shape.query_size * shape.num_layers
    return StepCost(
        tuple((num, seconds - draw_s) for num, seconds in points),
        draw_s,
        points[0][1] * plan.needs.bytes_per_token / plan.needs.weights,
        largest_s / largest * pair_products / products,
    )


def _timed(run: Callable[[Batch], Pending], batch: Batch) -> float:
    """Seconds of a step."""
    best = float("inf")
    for _ in range(2):
        started = time.perf_counter()
        run(batch).result()
        best = min(best, time.perf_counter() - started)
        if best > REPEATED_S:
            break
    return best


@contextmanager
def phase(report: Report, name: str) -> Iterator[None]:
    """Raises ConfigError where a card cannot do it, with what to set."""
    started = time.perf_counter()
    try:
        yield
    except Exception as error:
        advice = card_advice(error)
        if not advice:
            raise
        raise ConfigError(f"the start ends at {name}: {describe(error).partition(chr(10))[0]} ({advice})") from error
    report(name, time.perf_counter() - started)
