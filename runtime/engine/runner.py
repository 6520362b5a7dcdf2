"""Runs batches on a model: prepares and computes each, and turns it into a StepResult. Device neutral.

Decides the order of a step. Knows no request, no tree and no policy. T new tokens, Q drawing rows, V vocabulary.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any

import numpy as np
import torch

from ramet.ipc.params import shown
from ramet.kernels import reference
from ramet.runtime.cache.state_places import StateCopy
from ramet.runtime.config import Args
from ramet.runtime.engine.adapters import AdapterStore
from ramet.runtime.engine.batch import NO_ROWS, Batch, StepResult
from ramet.runtime.engine.extras import AdapterPlacement, Answer, HiddenRows, PromptLogprobs, SlotCopy, SlotUpdate
from ramet.runtime.engine.forward import ForwardResult
from ramet.runtime.engine.inputs import place
from ramet.runtime.engine.loaded import LoadedModel
from ramet.runtime.engine.occupation import ReleaseHooks, RunnerMemory
from ramet.runtime.engine.pending import PendingStep, StepLogits
from ramet.runtime.engine.prepared import BegunStep, StepGraphs, prepare_all
from ramet.runtime.engine.reloading import WeightReader, copy_over
from ramet.runtime.engine.startup import Report, measure_cost, padding_batch, phase
from ramet.runtime.engine.step_cost import StepCost
from ramet.runtime.errors import describe
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.transformers.implementation import skeleton_of
from ramet.runtime.sampling.columns import Forget, PenaltyReset, PlaceLogprobs
from ramet.runtime.sampling.logprobs import logprobs_of_prompt
from ramet.runtime.weights.heads import Heads

log = logging.getLogger("ramet")


class ModelRunner(LoadedModel):
    """Runs the batches of one loaded model, in the order they are launched."""

    def __init__(self, args: Args, report: Report) -> None:
        super().__init__(args, report)
        self._launched: PendingStep | None = None  # the last one, where steps are computed when they are asked for
        self._reached = 0  # first slot whose memory the KV pool has not been told to prepare
        self.adapters = AdapterStore(args.adapters, self.shape, self._forward, self.dtype, self.device.ops, self._wait)
        for generation, adapter in enumerate(args.named_adapters, 1):
            with phase(report, f"adapter {adapter.name}"):
                self.adapters.add(generation, self.adapters.read(adapter.path))
        num_bytes = self.plan.needs.weights
        self.weights = WeightReader(args, self.shape, self.dtype, self.device, num_bytes, self._swap)
        hooks = ReleaseHooks(self.release_weights, self.release_pools, self.drop_recorded_steps)
        self.memory = RunnerMemory(args, self.device, self.pool, self.weights, num_bytes, hooks)
        self._commands: dict[type, Callable[[Any], None]] = {
            SlotUpdate: self._table.take,
            SlotCopy: self._copy_slots,
            StateCopy: self._copy_state,
            AdapterPlacement: self.adapters.place,
            PenaltyReset: self._epilogue.reset_penalties,
            Forget: self._epilogue.forget,
        }
        self._answers: dict[type, Callable[[ForwardResult, Any], Answer]] = {
            PromptLogprobs: self._prompt_logprobs,
            HiddenRows: ForwardResult.hidden,
        }
        self._graphs = self._step_graphs(args)
        self.device.serve(self._forward.attention)
        if self._graphs is not None and self.device.captures_at_start:
            with phase(report, "graphs"):
                prompts = self._forward.prompt_graphs
                prepare_all(self.device, self._graphs, prompts, args.execute.cuda_graph_max_tokens)
        with phase(report, "warm-up"):
            self._warm_up()
        with phase(report, "cost of steps"):
            bounded, warm = args.schedule.max_itl_ms is not None, self.device.warms_sizes
            self._cost = measure_cost(self.launch, self.shape, self.plan, bounded=bounded, warm=warm)
        log.info("%s", self._cost)
        self._keeping = Thread(target=self._keep_weights, name="keep-weights", daemon=True)  # behind the start
        self._keeping.start()
        self._keep_weights = None  # it has every tensor, and other weights may take their place

    @property
    def asynchronous(self) -> bool:
        return self.device.queues_steps or (self._graphs is not None and self.device.num_threads > 1)

    @property
    def cost(self) -> StepCost:
        return self._cost

    @property
    def resolved(self) -> dict[str, object]:
        prompts = self._forward.prompt_graphs
        return {
            "device": self.device.name,
            "dtype": str(self.dtype).removeprefix("torch."),
            "quantization": self._quantization,
            "kv_cache_dtype": str(self.pool.dtype).removeprefix("torch."),
            "attention_backend": self._forward.attention.name,
            "num_threads": self.device.num_threads,
            "mem_fraction_static": self.plan.share,
            "weight_bytes": self.plan.needs.weights,
            "kv_pool_bytes": self.plan.pool_bytes,
            "max_total_tokens": self.facts.max_total_tokens,
            "cuda_graph_max_bs": 0 if self._graphs is None else self._graphs.max_rows,
            "cuda_graph_max_tokens": 0 if prompts is None else max(prompts.sizes, default=0),
        }

    def refusal(self, name: str, custom_params: dict[str, Any]) -> str:
        if name not in self._processors:
            return f"is {shown(name)}, must be one of {', '.join(sorted(self._processors))}"
        try:
            self._processors[name].check(custom_params, self.facts.vocab_size)
        except BaseException as error:  # noqa: BLE001 - a processor is code of others; its error goes to the client
            return f"is {name!r}, whose custom_params are wrong: {describe(error)}"
        return ""

    def launch(self, batch: Batch) -> PendingStep:
        """Where steps are queued, this one comes behind those before it. Else a prepared step runs while the host goes
        on; another one is computed when it is asked for, or when the next one is launched.
        """
        prepared = self._graphs is not None and self._graphs.covers(batch)
        before = self._launched
        if before is not None and not (prepared and before.draws_itself and not batch.before):
            before.compute()
        started = time.perf_counter()
        begun = self._begin_replay(batch) if prepared else None
        compute = self._compute_anew if begun is None else partial(self._finish_replay, begun, started)
        step = PendingStep(partial(compute, batch), self._epilogue, self.device, begun)
        if not self.device.queues_steps:
            self._launched = step
        elif not step.draws_itself:
            step.compute()
        return step

    def close(self) -> None:
        """Wait for what runs, and for weights that are being kept."""
        if self._graphs is not None:
            self._graphs.join()
        self._keeping.join()

    def _swap(self, model: CausalModel, heads: Heads, tower: Any) -> None:
        """Another model of the same shape, whose weights are in."""
        self._wait()
        if self._graphs is not None:
            self._graphs.join()
        if self.device.keeps_addresses:
            copy_over(self._forward.model, model)
        else:
            self.prepare_model(model)
            self.adapters.move_to(model)
            self._forward.model = model
            if self._graphs is not None:
                self._graphs.forget()
        self.pooler.take(heads)
        if self.media is not None:
            self.media.take(tower)

    def release_weights(self) -> None:
        """Until `_swap` no step is computed. Heads stay, as they are small."""
        self.drop_recorded_steps()
        self._keeping.join()  # it has every tensor
        self.adapters.let_go()
        self._launched = None
        self._forward.model = skeleton_of(self.shape, self.dtype, reference)
        if self.media is not None:
            self.media.let_go()

    def release_pools(self) -> None:
        self._wait()
        for pool in (self.pool, self.states, self.routes):
            if pool is not None:
                pool.give_back()
        self._reached = 0

    def drop_recorded_steps(self) -> None:
        """They are recorded again when they are needed."""
        self._wait()
        if self._graphs is not None:
            self._graphs.join()
            self._graphs.forget()

    def _wait(self) -> None:
        """Until what was launched is computed."""
        if self._launched is not None:
            self._launched.compute()

    @torch.inference_mode()
    def _begin_replay(self, batch: Batch) -> BegunStep | None:
        """None: the model's steps cannot be prepared."""
        assert self._graphs is not None
        self._run_commands(batch, prepared=True)
        return self._graphs.begin(batch, self.device.draws_captured(batch.sampling))

    @torch.inference_mode()
    def _finish_replay(self, begun: BegunStep, started: float, batch: Batch) -> StepResult | StepLogits:
        """`started`: when it was handed to the device."""
        if not begun.draws:
            logits = begun.logits()
            return StepLogits(logits, batch.sampling, batch.rows[batch.draws], _phases(begun, started))
        tokens, finite = begun.drawn()
        phases = _phases(begun, started)
        broken = () if finite.all() else tuple(np.flatnonzero(~finite).tolist())
        return StepResult(tokens, broken, phases=phases)

    @torch.inference_mode()
    def _compute_anew(self, batch: Batch) -> StepResult | StepLogits:
        started = time.perf_counter()
        self._run_commands(batch)
        found = self._forward_pass(batch)
        answers = tuple([self._answers[type(ask)](found, ask) for ask in batch.asks])
        logits = found.drawn()
        forwarded = time.perf_counter()
        phases = {"forward": forwarded - started, "sample": 0.0}
        if logits is None:
            return StepResult(NO_ROWS, answers=answers, phases=phases)
        return StepLogits(logits, batch.sampling, batch.rows[batch.draws], phases, answers)

    def _prompt_logprobs(self, found: ForwardResult, ask: PromptLogprobs) -> PlaceLogprobs:
        return logprobs_of_prompt(self.device.ops, found.logits, ask.first, ask.targets, ask.num_top, ask.ids)

    def _run_commands(self, batch: Batch, *, prepared: bool = False) -> None:
        """Carry out the commands before the step, and note where its tokens' slots are: `SlotTable.update`."""
        if len(batch.slots) and (last := int(batch.slots.max())) >= self._reached:
            self._reached = self.pool.reach(last)
        for command in batch.before:
            self._commands[type(command)](command)
        self._table.update(batch, prepared=prepared)

    def _copy_slots(self, copy: SlotCopy) -> None:
        source, target = torch.from_numpy(copy.source), torch.from_numpy(copy.target)
        self.pool.copy(source, target)
        if self.routes is not None:
            self.routes.copy(source, target)

    def _copy_state(self, copy: StateCopy) -> None:
        self.states.copy(copy.source, copy.target)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardResult:
        """Compute every new token of the batch."""
        self._run_commands(batch)
        return self._forward_pass(batch)

    def _forward_pass(self, batch: Batch) -> ForwardResult:
        inputs = place(batch, self._table, self._row_buffer, self.device.torch, self._forward.has_states)
        return self._forward.run(inputs, batch.draws, reads_all=bool(batch.asks))

    def _step_graphs(self, args: Args) -> StepGraphs | None:
        """None where the device or its attention cannot replay."""
        forward = self._forward
        if args.execute.disable_cuda_graph or not forward.model.replayable:
            return None
        if not self.device.captures(forward.attention):
            return None
        max_rows = min(self.facts.max_running_requests, args.execute.cuda_graph_max_bs)
        rows, table = self._row_buffer, self._table.device
        return StepGraphs(self.device, forward.decode, self._epilogue, rows, table, max_rows)

    def _warm_up(self) -> None:
        """One extend and one decode step in the padding row, so that the first request pays for no first call."""
        for start, num_new in ((0, 2), (2, 1)):
            self.launch(padding_batch(start, num_new)).result()


def _phases(begun: BegunStep, started: float) -> dict[str, float]:
    """Seconds of a prepared step, a draw of its own among them: the device's, or the host's since it was launched."""
    return {"forward": time.perf_counter() - started if begun.took_s is None else begun.took_s, "sample": 0.0}
