"""A loaded model that changes while it is served: its weights, its adapters, and the memory that it has.

Decides what a change waits for and what it drops. A subclass computes steps, of which none runs during a change.
"""

from threading import Thread
from typing import Any

from ramet.ipc.params import shown
from ramet.kernels import reference
from ramet.runtime.config import Args
from ramet.runtime.engine.adapters import AdapterStore
from ramet.runtime.engine.loaded import LoadedModel
from ramet.runtime.engine.occupation import ReleaseHooks, RunnerMemory
from ramet.runtime.engine.pending import PendingStep
from ramet.runtime.engine.prepared import StepGraphs
from ramet.runtime.engine.reloading import WeightReader, copy_over
from ramet.runtime.engine.startup import Report, phase
from ramet.runtime.errors import describe
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.transformers.implementation import skeleton_of
from ramet.runtime.weights.heads import Heads


class ServedModel(LoadedModel):
    """Raises ConfigError where named adapters do not fit."""

    def __init__(self, args: Args, report: Report) -> None:
        super().__init__(args, report)
        self._graphs: StepGraphs | None = None  # where steps are prepared
        self._launched: PendingStep | None = None  # the last one, where steps are computed when they are asked for
        self._reached = 0  # first slot whose memory the KV pool has not been told to prepare
        self.adapters = AdapterStore(args.adapters, self.shape, self._forward, self.dtype, self.device.ops, self.wait)
        for generation, adapter in enumerate(args.named_adapters, 1):
            with phase(report, f"adapter {adapter.name}"):
                self.adapters.add(generation, self.adapters.read(adapter.path))
        num_bytes = self.plan.needs.weights
        self.weights = WeightReader(args, self.shape, self.dtype, self.device, num_bytes, self._swap)
        hooks = ReleaseHooks(self.release_weights, self.release_pools, self.drop_recorded_steps)
        self.memory = RunnerMemory(args, self.device, self.pool, self.weights, num_bytes, hooks)

    def wait(self) -> None:
        """Until what was launched is computed."""
        if self._launched is not None:
            self._launched.compute()

    def keep_weights(self) -> None:
        """For the next start, behind this one."""
        self._keeping = Thread(target=self._keep_weights, name="keep-weights", daemon=True)
        self._keeping.start()
        self._keep_weights = None  # the thread has every tensor, and other weights may take their place

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

    def close(self) -> None:
        """Wait for what runs, and for weights that are being kept."""
        if self._graphs is not None:
            self._graphs.join()
        self._keeping.join()

    def _swap(self, model: CausalModel, heads: Heads, tower: Any) -> None:
        """Another model of the same shape, whose weights are in."""
        self.wait()
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
        self._launched = None  # a step has the model
        self._forward.model = skeleton_of(self.shape, self.dtype, reference)
        if self.media is not None:
            self.media.let_go()

    def release_pools(self) -> None:
        self.wait()
        for pool in (self.pool, self.states, self.routes):
            if pool is not None:
                pool.give_back()
        self._reached = 0

    def drop_recorded_steps(self) -> None:
        """They are recorded again when they are needed."""
        self.wait()
        if self._graphs is not None:
            self._graphs.join()
            self._graphs.forget()
