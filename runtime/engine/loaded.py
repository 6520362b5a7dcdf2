"""What a runner is made of once it has started: its model with its weights, the memory plan, pools and attention.

Decides the order of the start. Knows no step.
"""

import logging

import torch

from ramet.ipc.messages import ModelFacts
from ramet.ipc.spec import PoolingTask
from ramet.runtime.cache.pool import KVPool
from ramet.runtime.cache.routes import RouteTable
from ramet.runtime.cache.state_pool import StatePool
from ramet.runtime.config import Args
from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.engine.devices.base import AttentionSpec
from ramet.runtime.engine.devices.choice import choose_device, choose_threads
from ramet.runtime.engine.features import Media
from ramet.runtime.engine.forward import ForwardPass
from ramet.runtime.engine.inputs import SlotTable
from ramet.runtime.engine.pooler import HostPooler
from ramet.runtime.engine.startup import (
    Report,
    cache_dtype,
    check_options,
    dtype_name,
    dummy_seed,
    keep_routes,
    load_model,
    phase,
    plan_of,
    route_layout,
)
from ramet.runtime.engine.towers import load_media
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.towers.registry import has_tower
from ramet.runtime.models.transformers.implementation import read_model
from ramet.runtime.options.placement import bind_model, placement_of
from ramet.runtime.sampling.epilogue import RowBuffer
from ramet.runtime.sampling.processors import load, make_all
from ramet.runtime.weights.heads import load_heads

log = logging.getLogger("ramet")


class LoadedModel:
    """Raises ConfigError where what is asked for does not go together, or does not fit."""

    def __init__(self, args: Args, report: Report) -> None:
        self.routes: RouteTable | None = None
        self.media: Media | None = None  # see LoadedRunner
        self.shape: ModelShape = read_model(
            args.model_folder, args.model.json_model_override_args, args.model.model_impl
        )
        self.device = choose_device(args.execute.device)
        check_options(args, self.shape, self.device)
        placement = placement_of(args.execute.cpu_affinity)
        bind_model(placement)
        log.info("%s", placement)
        with phase(report, "kernels"):
            self.device.load_kernels()
        self.dtype: torch.dtype = getattr(torch, dtype_name(args, self.shape, self.device))
        if args.execute.enable_custom_logit_processor:
            load(args.execute.logit_processor_module)
        self._processors = make_all()
        in_checkpoint = self.shape.quantization
        self._quantization = args.model.quantization or (None if in_checkpoint is None else in_checkpoint.method)
        self.plan = plan_of(args, self.shape, self.dtype, self.device)
        log.info("%s", self.plan.table())
        if self.plan.context_length < self.plan.needs.context_length:
            log.warning(
                "the context is %d tokens instead of %d: one request may fill the KV pool (--max-total-tokens)",
                self.plan.context_length, self.plan.needs.context_length,
            )  # fmt: skip
        num_threads = choose_threads(args.execute.num_threads, self.plan.needs.weights, placement.model)
        with phase(report, "arithmetic"):
            self.device.start(num_threads)
        with phase(report, "weights"):
            on, ops = self.device.torch, self.device.ops
            model, self._keep_weights = load_model(args, self.shape, self.dtype, on, ops, mapped=True)
            self.pooler = HostPooler(load_heads(args.model_folder, self.shape, dummy_seed(args)))
        if has_tower(self.shape):
            with phase(report, "tower"):
                self.media = load_media(args, self.shape, self.dtype, self.device.torch, num_threads)
        with phase(report, "kv pool"):
            self._place_memory(args, model)
            self._epilogue = self.device.epilogue(
                args.max_penalised + 1,
                self._row_buffer,
                self.shape.vocab_size,
                self.device.torch,
                self.device.ops,
                self._processors,
                raw_logprobs=args.execute.logprobs_mode == "raw",
            )
        self.facts = self._facts()

    def _place_memory(self, args: Args, model: CausalModel) -> None:
        shape, device = self.shape, self.device.torch
        self.pool = KVPool(
            max_total_tokens=self.plan.max_total_tokens,
            page_size=args.cache.page_size,
            layers=shape.kv_shapes,
            dtype=cache_dtype(args, self.dtype),
            device=device,
        )
        self.states = StatePool(
            shape.deltas,
            max_running=self.plan.needs.max_running,
            num_snapshots=self.plan.needs.num_snapshots,
            dtype=self.dtype,
            device=device,
        )
        if args.schedule.max_itl_ms is not None:
            log.info("filling the KV pool, so that no step waits for memory: some 4 s a GiB (--max-total-tokens)")
            self.pool.take_memory()
        num_rows = self.plan.needs.max_running + PART_ROWS
        self._table = SlotTable(num_rows, self.plan.context_length, device)
        self._row_buffer = RowBuffer(num_rows + 1, device)
        rules = [layer.attention for layer in shape.layers]
        spec = AttentionSpec(self.pool, shape.heads, rules, num_rows, self.dtype, shape.latent)
        attention = self.device.attention(args.execute.attention_backend, spec)
        layout, num_slots = route_layout(args, shape), self.plan.max_total_tokens + args.cache.page_size
        if layout is not None:
            self.routes = RouteTable(layout, num_slots, device, self.device.ops.store_routes)
        self._forward = ForwardPass(
            self.device, model, attention, self._table.device,
            replays=not args.execute.disable_cuda_graph and model.replayable,
            captures_prompts=not shape.has_states,  # whose snapshots are taken inside a prompt
            plan_tokens=None if self.routes is None else self.routes.plan,
        )  # fmt: skip
        self.prepare_model(model)

    def prepare_model(self, model: CausalModel) -> None:
        """What a model needs beside its weights to be run here."""
        model.place_states(self.states)
        model.place_rope(self.plan.context_length, self.device.torch)
        if self.routes is not None:
            keep_routes(model, self.routes)

    def _facts(self) -> ModelFacts:
        shape, plan, sizes = self.shape, self.plan, self.pooler.sizes
        return ModelFacts(
            context_length=plan.context_length,
            max_total_tokens=plan.max_total_tokens,
            vocab_size=shape.vocab_size,
            max_running_requests=plan.needs.max_running,
            hidden_size=shape.hidden,
            routes=None if self.routes is None else self.routes.layout,
            takes_embeds=shape.layer_embeds is None,  # which are found by ids
            num_labels=sizes.get(PoolingTask.CLASSIFY, 0),
            dense_size=sizes.get(PoolingTask.EMBED, 0),
            generates=shape.generates,
            media={} if self.media is None else dict(self.media.tokens),
            windowed=any(layer.attention.window is not None for layer in shape.layers),
            longrope_limit=shape.longrope_limit(plan.context_length),
            num_snapshots=plan.needs.num_snapshots if shape.has_states else None,
        )
