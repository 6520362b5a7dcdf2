"""Runs batches on a model: prepares and computes each, and turns it into a result. Device neutral.

Decides the order of a step. Knows no request, no tree and no policy. T new tokens, Q drawing rows, V vocabulary.
"""

import logging
import time
from functools import partial

import torch

from ramet.runtime.config import Args
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.extras import SlotUpdate
from ramet.runtime.engine.forward import ForwardResult
from ramet.runtime.engine.inputs import place
from ramet.runtime.engine.pending import Computed, PendingStep
from ramet.runtime.engine.prepared import BegunStep, StepGraphs, prepare_all
from ramet.runtime.engine.row_inputs import with_inputs, with_states
from ramet.runtime.engine.served import ServedModel
from ramet.runtime.engine.startup import Report, measure_cost, padding_batch, phase
from ramet.runtime.engine.step_cost import StepCost
from ramet.runtime.engine.step_extras import Commands, answers_of, commands_of

log = logging.getLogger("ramet")


class ModelRunner(ServedModel):
    """Runs the batches of one loaded model, in the order they are launched."""

    def __init__(self, args: Args, report: Report) -> None:
        super().__init__(args, report)
        extras = commands_of(self, self.adapters, self._epilogue)
        self._commands: Commands = {SlotUpdate: self._table.take, **extras}
        self._answers = answers_of(self.device.ops)
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
        self.keep_weights()

    @property
    def asynchronous(self) -> bool:
        return self.device.queues_steps or (self._graphs is not None and self.device.num_threads > 1)

    @property
    def cost(self) -> StepCost:
        return self._cost

    @torch.inference_mode()
    def launch(self, batch: Batch) -> PendingStep:
        """Where steps are queued, this one comes behind those before it. Else a prepared step runs while the host goes
        on; another one is computed when it is asked for, or when the next one is launched.
        """
        graphs, before = self._graphs, self._launched
        if graphs is not None and not graphs.covers(batch):
            graphs = None
        if before is not None and (graphs is None or not before.draws_itself or batch.before):
            before.compute()
        started, begun = time.perf_counter(), None
        if graphs is not None:
            self._run_commands(batch, prepared=True)
            begun = graphs.begin(batch, self.device.draws_captured(batch.sampling))
        compute = partial(self._compute_anew, batch) if begun is None else partial(self._finish_replay, begun, started)
        drawing = batch.rows[batch.draws]
        step = PendingStep(compute, batch.sampling, drawing, self._epilogue, self.device, begun)
        if not self.device.queues_steps:
            self._launched = step
        elif not step.draws_itself:
            step.compute()
        return step

    @torch.inference_mode()
    def _finish_replay(self, begun: BegunStep, started: float) -> Computed:
        """`started`: when it was handed to the device."""
        logits = None
        if begun.draws:
            begun.drawn()
        else:
            logits = begun.logits()
        return Computed(logits, begun.phases(started))

    @torch.inference_mode()
    def _compute_anew(self, batch: Batch) -> Computed:
        started = time.perf_counter()
        found = self.forward(batch)
        answers = tuple([self._answers[type(ask)](found, ask) for ask in batch.asks]) if batch.asks else ()
        logits = found.drawn()
        return Computed(logits, {"forward": time.perf_counter() - started, "sample": 0.0}, answers)

    def _run_commands(self, batch: Batch, *, prepared: bool = False) -> None:
        """Carry out the commands before the step, and note where its tokens' slots are: `SlotTable.update`."""
        if len(batch.slots) and (last := int(batch.slots.max())) >= self._reached:
            self._reached = self.pool.reach(last)
        for command in batch.before:
            self._commands[type(command)](command)
        self._table.update(batch, prepared=prepared)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardResult:
        """Compute every new token of the batch."""
        self._run_commands(batch)
        inputs = place(batch, self._table, self._row_buffer, self.device.torch)
        if batch.inputs:
            inputs = with_inputs(inputs, batch)
        if self.shape.has_states:
            inputs = with_states(inputs, batch)
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
