"""Runs batches on a model: loads it, plans its memory, and turns each Batch into a StepResult. Device neutral.

Decides the order of start-up and of a step. Knows no request, no tree and no policy. T new tokens, N hidden size,
Q drawing rows, V vocabulary.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ramet.ipc.params import shown
from ramet.kernels import reference
from ramet.kernels.cpu.ops import CpuOps
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.attention.cpu import CpuAttention
from ramet.runtime.attention.latent_cpu import LatentCpuAttention
from ramet.runtime.cache.state_places import StateCopy
from ramet.runtime.config import Args
from ramet.runtime.engine.adapters import AdapterStore
from ramet.runtime.engine.batch import NO_ROWS, Batch, Done, Pending, StepResult
from ramet.runtime.engine.copies import Copies, Readback
from ramet.runtime.engine.extras import AdapterPlacement, Answer, HiddenRows, PromptLogprobs, SlotCopy, SlotUpdate
from ramet.runtime.engine.inputs import drawing, place
from ramet.runtime.engine.loaded import LoadedModel
from ramet.runtime.engine.occupation import Occupied, RunnerMemory
from ramet.runtime.engine.prepared import Begun, NotReplayable, StepGraphs
from ramet.runtime.engine.prompt_graphs import PromptGraphs
from ramet.runtime.engine.reloading import WeightReader, copy_over
from ramet.runtime.engine.startup import (
    Report,
    measure_cost,
    padding_batch,
    phase,
)
from ramet.runtime.engine.step_cost import StepCost
from ramet.runtime.engine.step_tape import DeferredSteps, Recorder, draw_next
from ramet.runtime.errors import describe
from ramet.runtime.lora.layers import StepSlots
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.transformers.implementation import skeleton_of
from ramet.runtime.sampling.columns import Forget, PenaltyReset, PlaceLogprobs, SamplingColumns
from ramet.runtime.sampling.epilogue import Drawn, Epilogue, on_device
from ramet.runtime.sampling.logprobs import logprobs_of_prompt
from ramet.runtime.sampling.processing import Failures
from ramet.runtime.weights.heads import Heads

MIN_DEFERRED = 16  # tokens of a step whose calls are listed first: those of fewer leave Python in the caches

log = logging.getLogger("ramet")


@dataclass(slots=True)
class Launched:
    """A step whose logits are computed or queued: it draws from them, at once or when its masks are there."""

    epilogue: Epilogue
    logits: Tensor  # [Q, V] float32
    columns: SamplingColumns
    rows: Ints  # [Q] of the slot table
    answers: tuple[Answer, ...]
    phases: dict[str, float]
    copies: Copies | None  # None: what is drawn is on the host already
    drawn: Drawn | None = None
    readback: Readback | None = None
    failed: tuple[tuple[int, ...], Failures] | None = None  # as Drawn.outcome; None: nobody has looked yet

    @property
    def runs(self) -> bool:
        return True

    @torch.inference_mode()
    def draw(self, allowed: Ints | None) -> None:
        """allowed [K, W] int32 of the K rows that a grammar masks."""
        started = time.perf_counter()
        rows = on_device(self.rows.astype(np.int64), self.logits.device)
        self.drawn = self.epilogue.run(self.logits, self.columns, rows, allowed)
        if self.copies is None:  # the next step may write its logits to the same place
            self.failed = self.drawn.outcome(self.drawn.finite)
        else:
            self.readback = Readback((self.drawn.tokens, self.drawn.finite), self.copies)
        self.phases["sample"] = time.perf_counter() - started

    def result(self) -> StepResult:
        assert self.drawn is not None, "a step waits for its masks"
        tokens, finite = (self.drawn.tokens, self.drawn.finite) if self.readback is None else self.readback.wait()
        broken, failures = self.failed or self.drawn.outcome(finite)
        return StepResult(
            tokens.numpy().astype(np.int32),
            broken,
            tuple((row, *failure) for row, failure in failures.items()),
            self.drawn.logprobs,
            self.drawn.healed,
            self.answers,
            self.phases,
        )


@dataclass(slots=True)
class Deferred:
    """A step that `compute` ends once it is asked for, by its result or by logits to draw from. `begun`: it runs."""

    compute: Callable[[], "StepResult | Launched"]
    begun: Begun | None
    ended: "StepResult | Launched | None" = None

    @property
    def runs(self) -> bool:
        return self.begun is not None and self.ended is None

    @property
    def draws_itself(self) -> bool:
        """The host does nothing more for it: what comes next can be begun behind it."""
        return self.begun is not None and self.begun.draws

    def end(self) -> "StepResult | Launched":
        if self.ended is None:
            self.ended = self.compute()
        return self.ended

    def draw(self, allowed: Ints) -> None:
        ended = self.end()
        assert isinstance(ended, Launched), "a step that has drawn its tokens gets a mask"
        ended.draw(allowed)

    def result(self) -> StepResult:
        ended = self.end()
        return ended.result() if isinstance(ended, Launched) else ended


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A step whose tokens are computed, before its logits are."""

    model: CausalModel
    x: Tensor  # [T, N], padding behind it, or of the tokens that draw alone: [Q, N]
    residual: Tensor  # as x
    last_tokens: Tensor  # [Q] int64, index into x
    step: StepSlots
    adapters: Tensor | None  # of x, as ForwardInputs

    def states(self, at: Tensor) -> Tensor:
        """at [n] int64 indices into T. [n, N] after the final norm."""
        return self.model.final_states(self.x, self.residual, at.to(self.x.device))

    def hidden(self, rows: HiddenRows) -> Floats:
        """[num, N], or their sum [1, N]; on the host."""
        states = self.states(torch.arange(rows.first, rows.first + rows.num)).float()
        kept: Floats = (states.sum(0, keepdim=True) if rows.summed else states).cpu().numpy()
        return kept

    def logits(self, at: Tensor) -> Tensor:
        """at [n] int64 indices into T. [n, V] float32"""
        if self.adapters is not None:
            self.step.place(self.adapters.index_select(0, at.to(self.x.device)))
        return self.model.logits(self.states(at))

    @torch.inference_mode()
    def drawn(self) -> Tensor | None:
        """[Q, V] float32 for the rows that draw, None when none does."""
        return self.logits(self.last_tokens) if len(self.last_tokens) else None


class ModelRunner(LoadedModel):
    """`context_length` is the smallest of the model's, --context-length and what the pool holds."""

    def __init__(self, args: Args, report: Report) -> None:
        super().__init__(args, report)
        self._launched: Deferred | None = None
        self._had_adapters = False  # the step that was computed last
        self._has_states = self.shape.has_states
        self._reached = 0  # the slot that the KV pool is told of next
        self.adapters = AdapterStore(args.adapters, self.shape, self._model, self.dtype, self._kernels, self._wait)
        for generation, adapter in enumerate(args.named_adapters, 1):
            with phase(report, f"adapter {adapter.name}"):
                self.adapters.add(generation, self.adapters.read(adapter.path))
        shown, num_bytes = (args, self.shape, self.dtype, self.device, self._kernels), self.plan.needs.weights
        self.weights = WeightReader(*shown, num_bytes, self._swap)
        occupied = Occupied(self._let_weights_go, self._give_pools_back, self._forget_steps)
        self.memory = RunnerMemory(args, self.device, self.pool, self.weights, num_bytes, occupied)
        self._commands: dict[type, Callable[[Any], None]] = {
            SlotUpdate: self._table.take,
            SlotCopy: self._copy_slots,
            StateCopy: self._copy_state,
            AdapterPlacement: self.adapters.place,
            PenaltyReset: self._epilogue.reset_penalties,
            Forget: self._epilogue.forget,
        }
        self._answers: dict[type, Callable[[Forwarded, Any], Answer]] = {
            PromptLogprobs: self._prompt_logprobs,
            HiddenRows: Forwarded.hidden,
        }
        self._prompt_graphs: PromptGraphs | None = None
        self._graphs = self._step_graphs(args)
        self._deferred_steps = self._choose_deferred(args)
        if isinstance(self._kernels, CpuOps) and self._attention.name == "cpu":
            torch.set_num_threads(1)  # nothing large is left to torch, and its threads would spin against ours
        if self._graphs is not None and self.device.type == "cuda":
            from ramet.runtime.engine.graphs import prepare_all

            with phase(report, "graphs"):
                prepare_all(self._graphs, self._prompt_graphs, args.execute.cuda_graph_max_tokens)
        with phase(report, "warm-up"):
            self._warm_up()
        with phase(report, "cost of steps"):
            bounded = args.schedule.max_itl_ms is not None
            on_gpu = self.device.type == "cuda"
            self._cost = measure_cost(self.launch, self.shape, self.plan, bounded=bounded, warm=on_gpu)
        log.info("%s", self._cost)
        self._keeping = Thread(target=self._keep_weights, name="keep-weights", daemon=True)  # behind the start
        self._keeping.start()
        self._keep_weights = None  # it has every tensor, and other weights may take their place

    @property
    def asynchronous(self) -> bool:
        return self.device.type == "cuda" or (self._graphs is not None and self._threads > 1)

    @property
    def hidden_size(self) -> int:
        return self.shape.hidden

    @property
    def cost(self) -> StepCost:
        return self._cost

    @property
    def resolved(self) -> dict[str, object]:
        return {
            "device": self.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
            "quantization": self._quantization,
            "kv_cache_dtype": str(self.pool.dtype).removeprefix("torch."),
            "attention_backend": self._attention.name,
            "num_threads": self._threads,
            "mem_fraction_static": self.plan.share,
            "weight_bytes": self.plan.needs.weights,
            "kv_pool_bytes": self.plan.pool_bytes,
            "max_total_tokens": self.max_total_tokens,
            "cuda_graph_max_bs": 0 if self._graphs is None else self._graphs.max_rows,
            "cuda_graph_max_tokens": 0 if self._prompt_graphs is None else max(self._prompt_graphs.sizes, default=0),
        }

    def refusal(self, name: str, custom_params: dict[str, Any]) -> str:
        if name not in self._processors:
            return f"is {shown(name)}, must be one of {', '.join(sorted(self._processors))}"
        try:
            self._processors[name].check(custom_params, self.vocab_size)
        except BaseException as error:  # noqa: BLE001 - a processor is code of others; its error goes to the client
            return f"is {name!r}, whose custom_params are wrong: {describe(error)}"
        return ""

    def launch(self, batch: Batch) -> Pending:
        """On a CPU a prepared step runs while the host goes on; another one is computed when it is asked for, or when
        the next one is launched.
        """
        prepared = self._graphs is not None and self._graphs.covers(batch)
        if self.device.type != "cpu":
            return self._queued(batch, prepared)
        if self._launched is not None and not (prepared and self._launched.draws_itself and not batch.before):
            self._launched.end()
        started = time.perf_counter()
        begun = self._begin(batch) if prepared else None
        compute = self._computed if begun is None else partial(self._replayed, begun, started)
        self._launched = Deferred(partial(compute, batch), begun)
        return self._launched

    def _queued(self, batch: Batch, prepared: bool) -> Pending:
        """A step that a GPU computes behind those before it."""
        started = time.perf_counter()
        begun = self._begin(batch) if prepared else None
        if begun is not None and begun.draws:
            return Deferred(partial(self._replayed, begun, started, batch), begun)
        queued = self._computed(batch) if begun is None else self._replayed(begun, started, batch)
        return Done(queued) if isinstance(queued, StepResult) else queued

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
        if self.device.type != "cpu":
            copy_over(self._model, model)
        else:
            self.prepare_model(model)
            self.adapters.move_to(model)
            self._model = model
            if self._graphs is not None:
                self._graphs.forget()
        self._pooler.take(heads)
        if self.media is not None:
            self.media.take(tower)

    def _let_weights_go(self) -> None:
        """Until `_swap` no step is computed. Heads stay, as they are small."""
        self._forget_steps()
        self._keeping.join()  # it has every tensor
        self.adapters.let_go()
        self._launched = None
        self._model = skeleton_of(self.shape, self.dtype, reference)
        if self.media is not None:
            self.media.let_go()

    def _give_pools_back(self) -> None:
        self._wait()
        for pool in (self.pool, self.states, self._routes):
            if pool is not None:
                pool.give_back()
        self._reached = 0

    def _forget_steps(self) -> None:
        """Those that are recorded, which are recorded again when they are needed."""
        self._wait()
        if self._graphs is not None:
            self._graphs.join()
            self._graphs.forget()

    def _wait(self) -> None:
        """Until what was launched is computed."""
        if self._launched is not None:
            self._launched.end()

    @torch.inference_mode()
    def _begin(self, batch: Batch) -> Begun | None:
        """None: the model's steps cannot be prepared."""
        assert self._graphs is not None
        on_cpu = self.device.type == "cpu"
        self._take_in(batch, new_tokens=on_cpu)
        return self._graphs.begin(batch, (_is_plain if on_cpu else _is_graphed)(batch.sampling))

    @torch.inference_mode()
    def _replayed(self, begun: Begun, started: float, batch: Batch) -> StepResult | Launched:
        """`started`: when it was handed to the device."""
        if not begun.draws:
            logits = begun.logits()
            return self._drawing(batch, logits, (), _phases(begun, started))
        tokens, finite = begun.drawn()
        phases = _phases(begun, started)
        broken = () if finite.all() else tuple(np.flatnonzero(~finite).tolist())
        return StepResult(tokens, broken, phases=phases)

    @torch.inference_mode()
    def _computed(self, batch: Batch) -> StepResult | Launched:
        started = time.perf_counter()
        self._take_in(batch)
        state = self._compute(batch)
        answers = tuple([self._answers[type(ask)](state, ask) for ask in batch.asks])
        logits = state.drawn()
        forwarded = time.perf_counter()
        phases = {"forward": forwarded - started, "sample": 0.0}
        if logits is None:
            return StepResult(NO_ROWS, answers=answers, phases=phases)
        return self._drawing(batch, logits, answers, phases)

    def _prompt_logprobs(self, state: "Forwarded", ask: PromptLogprobs) -> PlaceLogprobs:
        return logprobs_of_prompt(self._kernels, state.logits, ask.first, ask.targets, ask.num_top, ask.ids)

    def _drawing(self, batch: Batch, logits: Tensor, answers: tuple[Answer, ...], phases: dict[str, float]) -> Launched:
        rows = batch.rows[batch.draws]
        launched = Launched(self._epilogue, logits, batch.sampling, rows, answers, phases, self._copies)
        if batch.sampling.masked is None:
            launched.draw(None)
        return launched

    def _take_in(self, batch: Batch, new_tokens: bool = True) -> None:
        """Carry out the commands before the step, and note where its tokens' slots are: `SlotTable.update`."""
        if len(batch.slots) and (last := int(batch.slots.max())) >= self._reached:
            self._reached = self.pool.reach(last)
        for command in batch.before:
            self._commands[type(command)](command)
        self._table.update(batch, new_tokens)

    def _copy_slots(self, copy: SlotCopy) -> None:
        source, target = torch.from_numpy(copy.source), torch.from_numpy(copy.target)
        self.pool.copy(source, target)
        if self._routes is not None:
            self._routes.copy(source, target)

    def _copy_state(self, copy: StateCopy) -> None:
        self.states.copy(copy.source, copy.target)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> "Forwarded":
        """Compute every new token of the batch."""
        self._take_in(batch)
        return self._compute(batch)

    def _compute(self, batch: Batch) -> "Forwarded":
        inputs = place(batch, self._table, self._row_buffer, self.device, self._has_states)
        if self._prompt_graphs is not None and inputs.adapters is None:
            self._place_adapters(None)
            states = self._prompt_graphs.run(inputs)
            if states is not None:
                return Forwarded(self._model, *states, inputs.last_tokens, self.adapters.step, None)
        at, wanted = inputs.last_tokens, None
        others_are_read = bool(batch.asks) or self._routes is not None
        if len(at) < len(inputs.token_ids) and not others_are_read:
            wanted = drawing(inputs, batch.draws)
            at = wanted.last_tokens
        of_x = inputs if wanted is None else wanted
        return Forwarded(self._model, *self._hidden_states(inputs, wanted), at, self.adapters.step, of_x.adapters)

    def _plan(self, inputs: ForwardInputs) -> None:
        """What a forward pass with these needs to know beforehand."""
        self._attention.plan(inputs)
        if self._routes is not None:
            self._routes.plan(inputs.slots)

    def _place_adapters(self, *columns: Tensor | None) -> None:
        """As StepSlots.place, of a step: if a token has one, or one of the step before had."""
        has_some = any(column is not None for column in columns)
        if has_some or self._had_adapters:
            self.adapters.step.place(*columns)
        self._had_adapters = has_some

    def _every_state(self, inputs: ForwardInputs) -> tuple[Tensor, Tensor]:
        """x and residual [T, N] each, of all tokens."""
        self._plan(inputs)
        self._place_adapters(inputs.adapters)
        return self._model.hidden_states(inputs, self._attention)

    def _hidden_states(self, inputs: ForwardInputs, wanted: ForwardInputs | None) -> tuple[Tensor, Tensor]:
        self._place_adapters(inputs.adapters, None if wanted is None else wanted.adapters)

        def computed() -> tuple[Tensor, Tensor]:
            self._plan(inputs)
            return self._model.hidden_states(inputs, self._attention, wanted)

        is_text = not inputs.embeds and inputs.mrope_positions is None
        if self._deferred_steps is not None and is_text and len(inputs.token_ids) >= MIN_DEFERRED:
            try:
                kind = None if wanted is None else len(wanted.rows) > 0, inputs.adapters is None
                return self._deferred_steps.run(kind, computed)
            except NotReplayable as why:
                log.info("steps with prompts are computed call by call: %s", why)
                self._deferred_steps = None
        return computed()

    def _choose_deferred(self, args: Args) -> DeferredSteps | None:
        """None where an op, or attention to a long row, may be torch's."""
        ops = self._kernels
        if args.execute.disable_cuda_graph or not isinstance(ops, CpuOps) or self._attention.name != "cpu":
            return None
        if not self._model.replayable:
            return None
        return DeferredSteps(ops)

    def _decode(self, inputs: ForwardInputs) -> Tensor:
        self._plan(inputs)
        self._place_adapters(inputs.adapters)
        return self._model.decode(inputs, self._attention, narrow=self.device.type == "cuda")

    def _step_graphs(self, args: Args) -> StepGraphs | None:
        """None where the device or its attention cannot replay."""
        ops = self._kernels
        if args.execute.disable_cuda_graph or not self._model.replayable:
            return None
        max_rows = min(self.max_running, args.execute.cuda_graph_max_bs)
        if self.device.type == "cuda" and self._attention.name != "reference":
            from ramet.runtime.engine.graphs import CudaCapture, cuda_graphs, prompt_graphs  # loads triton

            assert self._copies is not None, "our Triton kernels run on a GPU"
            table, capture = self._table.device, CudaCapture()
            if not self.shape.has_states:  # snapshots are taken inside a prompt, any number of them
                self._prompt_graphs = prompt_graphs(self._every_state, self._attention, table, capture, self._copies)
            of_device = table, max_rows, self._copies, capture
            return cuda_graphs(self._decode, self._epilogue, self._row_buffer, *of_device)
        if not isinstance(ops, CpuOps) or not isinstance(self._attention, CpuAttention | LatentCpuAttention):
            return None
        draw, record = partial(draw_next, ops, self._row_buffer), Recorder(ops, self._row_buffer)
        return StepGraphs(self._decode, draw, record, self._table.device, max_rows)

    def _warm_up(self) -> None:
        """One extend and one decode step in the padding row, so that the first request pays for no first call."""
        for start, num_new in ((0, 2), (2, 1)):
            self.launch(padding_batch(start, num_new)).result()


def _phases(begun: Begun, started: float) -> dict[str, float]:
    """Seconds of a prepared step, a draw of its own among them: the device's, or the host's since it was launched."""
    return {"forward": time.perf_counter() - started if begun.took_s is None else begun.took_s, "sample": 0.0}


def _is_plain(columns: SamplingColumns) -> bool:
    """Nothing but the draw: it needs the logits as the model made them, and returns the tokens alone."""
    return columns.penalties is None and _is_penalised_at_most(columns)


def _is_graphed(columns: SamplingColumns) -> bool:
    """What a GPU's prepared draw does."""
    return _is_penalised_at_most(columns) and not columns.is_cut


def _is_penalised_at_most(columns: SamplingColumns) -> bool:
    changes = columns.biased, columns.banned, columns.masked
    return all(each is None for each in changes) and not (columns.processors or columns.filters or columns.logprobs)
