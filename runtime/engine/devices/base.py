"""What the engine asks of a device: its kernels and its attention, its memory, and steps that it captures.

Decides the interface alone: cpu.py and cuda.py say what each device does, and nobody else asks for a device's type.
n rows of a captured step, T tokens, N hidden size, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor

from ramet.runtime.attention.base import ForwardInputs, LayerAttention, StepBackend
from ramet.runtime.attention.latent import LatentSizes
from ramet.runtime.cache.pool import KVPool
from ramet.runtime.config import Args
from ramet.runtime.engine.devices.copies import Readback
from ramet.runtime.engine.devices.step_inputs import StepInputs
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.ops import Ops
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.sampling.epilogue import Epilogue, RowBuffer, SamplingKernel

if TYPE_CHECKING:
    from ramet.runtime.engine.devices.prompt_graphs import PromptGraphs

States = tuple[Tensor, Tensor]  # x and the residual [T, N] each, as Decoder.hidden_states gives them
StatesOf = Callable[[ForwardInputs], States]
NEEDS = {"cpu": "cpu", "gather": "cpu", "triton": "cuda", "flashinfer": "cuda"}  # --attention-backend -> --device


class Kernels(Ops, SamplingKernel, Protocol):
    """Everything that a step computes outside of attention and matrix products."""


class NotReplayable(Exception):
    """The forward pass does something that the device cannot capture; the message names it."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What an attention backend is made for: `max_rows` may decode, queries are of `dtype`."""

    pool: KVPool
    heads: int
    layers: Sequence[LayerAttention]
    max_rows: int
    dtype: torch.dtype
    latent: LatentSizes | None = None  # None: the model caches keys and values


class Replay(Protocol):
    """What was captured, to be run again."""

    def begin(self) -> int:
        """Run it, behind what was begun before, while the host goes on; returns what to join it by."""

    def join(self, begun: int) -> None:
        """Wait for it and what was begun before it, on the thread that began them."""

    def took_s(self) -> float | None:
        """How long the device computed, when it was joined last; None: the device does not say."""


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """A decode step, captured once for each of the two places its inputs come from and its draws go to."""

    logits: Tensor  # [n, V], which each replay writes again
    drawn: Sequence[tuple[Tensor, Tensor]]  # at either place, on the host: tokens [n] int64, and finite [n] bool
    forward: Sequence[Replay]  # from either place: takes the inputs, computes logits
    whole: Sequence[Replay]  # the same, and the draw
    in_order: bool  # what is computed of the logits comes behind the step by itself, so the host need not wait


class Device(ABC):
    """One device that a model runs on. `start` comes before anything is asked of its kernels."""

    name: ClassVar[str]  # as --device spells it
    queues_steps: ClassVar[bool]  # a step is computed behind those before it while the host goes on
    keeps_addresses: ClassVar[bool]  # captured steps stay for good, so nothing that they read may move
    captures_at_start: ClassVar[bool]  # steps of a few sizes, as padding costs little; else each when it is needed
    captures_adapters: ClassVar[bool]  # steps of rows that have some
    draws_narrow: ClassVar[bool]  # from logits of any float dtype
    warms_sizes: ClassVar[bool]  # its libraries choose how they multiply when they first meet a size
    shares_memory: ClassVar[bool]  # with other programs
    expands_latents: ClassVar[bool]  # of a long prompt, which takes memory
    ops: Kernels
    num_threads: int

    def __init__(self) -> None:
        self.torch = torch.device(self.name)

    # -- the start ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def available_bytes(self) -> int:
        """Memory that could be taken now, without swapping on a CPU."""

    @abstractmethod
    def load_kernels(self) -> None:
        """Compile them, where that was not done before."""

    @abstractmethod
    def computes(self, dtype: torch.dtype) -> bool:
        """Whether nothing is gained by float32 in the place of this dtype."""

    @abstractmethod
    def start(self, num_threads: int) -> None:
        """Choose `ops`, for so many threads on a CPU."""

    def check_attention(self, name: str) -> None:
        """Raises ConfigError for an --attention-backend of another device."""
        if (needed := NEEDS.get(name, self.name)) != self.name:
            raise ConfigError(f"--attention-backend is {name}, which needs --device {needed}; use auto")

    @abstractmethod
    def check_float8(self, args: Args) -> None:
        """Raises ConfigError where weights or a KV cache of fp8 are asked for and cannot be computed with."""

    def attention(self, name: str, spec: AttentionSpec) -> StepBackend:
        """`name` as --attention-backend has it. Raises ConfigError."""
        if spec.latent is not None:
            return self._attention_to_latents(name, spec, spec.latent)
        self.check_attention(name)
        return self._attention(name, spec)

    @abstractmethod
    def _attention(self, name: str, spec: AttentionSpec) -> StepBackend: ...

    @abstractmethod
    def _attention_to_latents(self, name: str, spec: AttentionSpec, sizes: LatentSizes) -> StepBackend: ...

    @property
    @abstractmethod
    def epilogue(self) -> type[Epilogue]: ...

    # -- steps -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def captures(self, attention: StepBackend) -> bool:
        """Whether decode steps with this attention can be captured."""

    @abstractmethod
    def draws_captured(self, columns: SamplingColumns) -> bool:
        """Whether the draw of a captured step does all that these rows ask, and returns it."""

    @abstractmethod
    def capture(
        self, inputs: StepInputs, forward: Callable[[], Tensor], epilogue: Epilogue, rows: RowBuffer
    ) -> CapturedStep:
        """A forward pass over these inputs and the draw from its logits; what is drawn goes to `rows`, too.

        Raises NotReplayable.
        """

    def capture_prompts(self, states_of: StatesOf, attention: StepBackend, table: Tensor) -> "PromptGraphs | None":
        """The layers of steps with prompts; None: this device, or this attention, plans prompts on the host."""
        return None

    def lists_calls(self, attention: StepBackend) -> bool:
        """Whether `at_once` serves with this attention."""
        return False

    def at_once(self, kind: Hashable, compute: Callable[[], States]) -> States:
        """What `compute` returns, with all of its native calls made in one. All of a `kind` make the same calls.

        Raises NotReplayable, and then nothing has run.
        """
        raise NotReplayable(f"no calls are listed on {self.name}")

    @abstractmethod
    def to_host(self, tensors: tuple[Tensor, ...]) -> Readback | None:
        """Begin to copy what a step has drawn; None: it is on the host already."""

    @abstractmethod
    def serve(self, attention: StepBackend) -> None:
        """Only steps come from now on, and nothing else that torch's threads would compute."""
