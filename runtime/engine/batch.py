"""What one device step computes, as plain host arrays. Immutable: built by the scheduler, read by any runner.

Knows no torch and no request. R rows (sequences), T new tokens over all rows, Q rows that draw a token.
Rows with one new token come first (decode), rows with more follow (extend): section 5.3 of the SGLang paper.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Fill:
    """Slots that the cache gave a row and the runner's slot table does not hold yet: table[row, start:start+len] = slots."""

    row: int
    start: int
    slots: Ints


@dataclass(frozen=True, slots=True)
class SamplingColumns:
    """How each of the Q drawing rows samples, one value per row in every column."""

    temperature: npt.NDArray[np.float32]  # [Q]; 0 is greedy
    top_k: npt.NDArray[np.int64]  # [Q]; 0 is off
    top_p: npt.NDArray[np.float32]  # [Q]; 1 is off
    min_p: npt.NDArray[np.float32]  # [Q]; 0 is off
    seeds: npt.NDArray[np.uint64]  # [Q]
    positions: npt.NDArray[np.int64]  # [Q] index of the token to draw in the row's own output
    banned: tuple[tuple[int, Ints], ...] = ()  # (index into Q, token ids that must not be drawn)


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


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was already computed when `launch` returned (CPU, scripted)."""

    value: StepResult

    def result(self) -> StepResult:
        return self.value
