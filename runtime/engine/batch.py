"""What one device step computes, as plain host arrays. Immutable: built by the scheduler, read by any runner.

Knows no torch and no request. R rows (sequences), T new tokens over all rows, Q rows that draw a token.
Rows with one new token come first (decode), rows with more follow (extend): section 5.3 of the SGLang paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from ramet.ipc.media import MediaTokens, Prepared
from ramet.ipc.messages import ModelFacts, RouteLayout
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.extras import Answer, Ask, Command, Features, RowInput
from ramet.runtime.engine.step_cost import StepCost, StepLoad
from ramet.runtime.sampling.columns import HealedPlace, PlaceLogprobs, SamplingColumns

if TYPE_CHECKING:
    from ramet.runtime.engine.occupation import RunnerMemory
    from ramet.runtime.engine.pooler import HostPooler
    from ramet.runtime.engine.reloading import WeightReader

NO_ROWS: Ints = np.empty(0, dtype=np.int32)
T = TypeVar("T")
PART_ROWS = 16  # rows of the slot table beside those of requests, for parallel contexts


@dataclass(frozen=True, slots=True)
class Batch:
    rows: Ints  # [R] row of each sequence in the slot table
    num_new: Ints  # [R] new tokens, >= 1
    seq_lens: Ints  # [R] tokens after this step, cached prefix and new ones together
    token_ids: Ints  # [T]; what it says of a relayed token means nothing
    positions: Ints  # [T] index of each token in its row of the slot table
    slots: Ints  # [T] where the keys and values of each new token go
    num_decode: int  # rows [0, num_decode) have one new token, the others may have more
    draws: Ints  # [Q] indices into R of the rows that draw a token after this step
    sampling: SamplingColumns
    # indices into R, below num_decode: their new token is what their row drew last
    relayed: Ints = field(default_factory=lambda: NO_ROWS)
    before: tuple[Command, ...] = ()
    inputs: tuple[RowInput, ...] = ()
    asks: tuple[Ask, ...] = ()
    only_decodes: bool = False  # every row decodes and draws, and nothing else is asked of the forward pass

    @property
    def load(self) -> StepLoad:
        return StepLoad.of(self.num_new, self.seq_lens, self.num_decode, len(self.draws))

    def input(self, kind: type[T]) -> T | None:
        """The first input of this type; None: no row brings one."""
        return next((each for each in self.inputs if isinstance(each, kind)), None)


@dataclass(frozen=True, slots=True)
class StepResult:
    """tokens[i] was drawn for batch.draws[i]; `broken` lists the indices into draws whose logits were not finite."""

    tokens: Ints  # [Q]
    broken: tuple[int, ...] = ()
    failures: tuple[tuple[int, str, int], ...] = ()  # (index into draws, why it must end, HTTP status)
    drawn_logprobs: tuple[PlaceLogprobs, ...] = ()  # one for each of batch.sampling.logprobs
    healed: tuple[HealedPlace, ...] = ()  # one for each of batch.sampling.healed
    answers: tuple[Answer, ...] = ()  # one for each of batch.asks
    phases: dict[str, float] = field(default_factory=dict)  # seconds: "forward", "sample"


class Pending(Protocol):
    """A launched step. Of a step with `sampling.masked` the tokens are computed, and drawn once `draw` is called."""

    @property
    def runs(self) -> bool:
        """Whether it is being computed while the host goes on."""

    def draw(self, allowed: Ints) -> None:
        """allowed [K, W] int32: a bit for each token that row masked[k] may draw. Bit i of word w is token 32 w + i."""

    def result(self) -> StepResult:
        """Blocks until the device is done; call it once."""


class RouteSource(Protocol):
    """Which experts every cached token went through."""

    @property
    def layout(self) -> RouteLayout: ...

    def read(self, slots: Ints) -> Ints:
        """slots [n] of tokens that steps have computed -> [n, layers with experts, experts of a token]"""


class AdapterSource(Protocol):
    """Adapters that a runner has on the host. Steps place them in slots (`AdapterPlacement`)."""

    def read(self, path: str) -> Any:
        """What `add` is given, on any thread, while steps run. Raises ConfigError."""

    def add(self, generation: int, adapter: Any) -> None:
        """Raises ConfigError; then nothing has changed."""

    def drop(self, generation: int) -> None:
        """No step that is planned has it."""


class MediaSource(Protocol):
    """Makes features of media. No step is computed meanwhile."""

    @property
    def tokens(self) -> MediaTokens:
        """Of the kinds that the model takes: what stands for a piece."""

    @property
    def is_whole(self) -> bool:
        """Tokens of one piece see each other: no step may end inside it."""

    @property
    def num_bytes(self) -> int:
        """Of features that are kept."""

    def find(self, key: bytes) -> Features | None:
        """What is kept of the piece with this key."""

    def compute(self, items: Sequence[Prepared]) -> list[Features | str]:
        """Of each, or why there are none."""


class LoadedRunner(Protocol):
    """A runner that is ready. Its rows are those of requests, the padding row and PART_ROWS."""

    def launch(self, batch: Batch) -> Pending:
        """Run it behind the batches that were launched before."""

    @property
    def weights(self) -> "WeightReader | None":
        """None: it has no model."""

    @property
    def memory(self) -> "RunnerMemory | None":
        """None: it has no model."""

    @property
    def adapters(self) -> AdapterSource | None:
        """None: it has no model that they could change."""

    @property
    def media(self) -> MediaSource | None:
        """None: the model takes texts alone."""

    def refusal(self, name: str, custom_params: dict[str, Any]) -> str:
        """Why a request cannot have the logit processor of this name with these parameters; empty: it can."""

    def close(self) -> None:
        """Wait for what runs. Nothing is launched afterwards."""

    @property
    def asynchronous(self) -> bool:
        """Whether there are steps that are computed while the host goes on."""

    @property
    def facts(self) -> ModelFacts: ...

    @property
    def pooler(self) -> "HostPooler | None":
        """None: the model has no other head."""

    @property
    def routes(self) -> RouteSource | None:
        """None: they are not kept."""

    @property
    def cost(self) -> StepCost | None:
        """What a step costs here; None: nothing is known of it."""

    @property
    def resolved(self) -> dict[str, object]:
        """Options by name, as they are used: what "auto" and unset ones came to."""


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was already computed when `launch` returned. `runs`: a loop is to plan ahead of it all the same."""

    value: StepResult
    runs: bool = False

    def draw(self, allowed: Ints) -> None:
        raise AssertionError("a step that has drawn its tokens gets a mask")

    def result(self) -> StepResult:
        return self.value
