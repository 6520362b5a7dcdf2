"""What one device step computes, as plain host arrays. Immutable: built by the scheduler, read by any runner.

Knows no torch and no request. R rows (sequences), T new tokens over all rows, Q rows that draw a token.
Rows with one new token come first (decode), rows with more follow (extend): section 5.3 of the SGLang paper.
"""

from dataclasses import dataclass, field
from typing import Protocol

from ramet.runtime.arrays import Ints
from ramet.runtime.sampling.columns import SamplingColumns


@dataclass(frozen=True, slots=True)
class Fill:
    """Slots the runner's table does not hold yet (a cached prefix): table[row, start : start + len(slots)] = slots."""

    row: int
    start: int
    slots: Ints


@dataclass(frozen=True, slots=True)
class Batch:
    rows: Ints  # [R] row of each sequence in the slot table
    num_new: Ints  # [R] new tokens, >= 1
    seq_lens: Ints  # [R] tokens after this step, cached prefix and new ones together
    token_ids: Ints  # [T]
    positions: Ints  # [T]
    slots: Ints  # [T] where the keys and values of each new token go
    num_decode: int  # rows [0, num_decode) have one new token, the others may have more
    draws: Ints  # [Q] indices into R of the rows that draw a token after this step
    sampling: SamplingColumns
    fills: tuple[Fill, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """tokens[i] was drawn for batch.draws[i]; `broken` lists the indices into draws whose logits were not finite."""

    tokens: Ints  # [Q]
    broken: tuple[int, ...] = ()
    phases: dict[str, float] = field(default_factory=dict)  # seconds: "forward", "sample"


class Pending(Protocol):
    """A launched step. `result` blocks until the device is done; call it once."""

    def result(self) -> StepResult: ...


class Runner(Protocol):
    """Runs batches in the order they are launched."""

    def launch(self, batch: Batch) -> Pending: ...


class LoadedRunner(Runner, Protocol):
    """A runner that is ready, and what it allows."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def context_length(self) -> int:
        """Tokens of prompt and output together."""

    @property
    def max_total_tokens(self) -> int:
        """Slots beside the padding page."""

    @property
    def max_running(self) -> int:
        """Rows beside the padding row."""

    @property
    def resolved(self) -> dict[str, object]:
        """Options by name, as they are used: what "auto" and unset ones came to."""


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was already computed when `launch` returned (CPU, scripted)."""

    value: StepResult

    def result(self) -> StepResult:
        return self.value


__all__ = ["Batch", "Done", "Fill", "Ints", "LoadedRunner", "Pending", "Runner", "SamplingColumns", "StepResult"]
