"""Frequency, presence and repetition penalties: what each request that uses them has drawn so far, on the device.

A new penalty needs, from the root of the repository:

- a field in ipc/params.py, also in `SamplingParams.penalised`, and in runtime/intake/specs.py;
- a column in `Penalties` of runtime/sampling/columns.py, which runtime/scheduler/features/penalties.py fills from a row
  and runtime/engine/column_extras.py in prepared steps (runtime/engine/devices/step_inputs.py);
- an argument of `PenaltyKernel.penalise` here, and its arithmetic: kernels/reference.py (the oracle),
  kernels/cpu/sampling.py with penalties.cpp, and on a GPU runtime/sampling/fused.py with kernels/epilogue_rows.py and
  kernels/logits_epilogue.py;
- a test against an oracle, as those of tests/differential/test_penalty_oracle.py.

Decides where counts live and when they change. State is per slot; the scheduler leases a slot to a running request that
uses a penalty, it is set from the request's own tokens when that is seated (so retraction loses nothing), and the step
that draws advances it. Knows no request. S slots, V vocabulary, W = ceil(V / 32) words, P penalised rows.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ramet.runtime.sampling.columns import Penalties, PenaltyReset

MAX_COUNT = 255  # counts stop here


class PenaltyKernel(Protocol):
    """`ramet.kernels.reference` documents it."""

    def penalise(
        self,
        logits: Tensor,
        rows: Tensor,
        slots: Tensor,
        frequency: Tensor,
        presence: Tensor,
        repetition: Tensor,
        counts: Tensor,
        seen: Tensor,
    ) -> None: ...

    def count_tokens(self, counts: Tensor, rows: Tensor, slots: Tensor, tokens: Tensor) -> None: ...


def state_bytes(num_slots: int, vocab_size: int) -> int:
    return num_slots * (vocab_size + 4 * _num_words(vocab_size))


class PenaltyState:
    """counts [S, V] uint8 of what was drawn; seen [S, W] int32: a bit for each token that counts as seen besides."""

    def __init__(self, num_slots: int, vocab_size: int, device: torch.device, kernel: PenaltyKernel) -> None:
        self.counts = torch.zeros((num_slots, vocab_size), dtype=torch.uint8, device=device)
        self.seen = torch.zeros((num_slots, _num_words(vocab_size)), dtype=torch.int32, device=device)
        self._kernel = kernel

    def reset(self, reset: PenaltyReset) -> None:
        """Forget what the slot held and count this output."""
        vocabulary, device = self.counts.shape[1], self.counts.device
        counts = np.minimum(np.bincount(reset.output, minlength=vocabulary), MAX_COUNT).astype(np.uint8)
        self.counts[reset.slot] = torch.from_numpy(counts).to(device, non_blocking=True)
        bits = np.zeros(32 * self.seen.shape[1], np.uint8)
        bits[reset.prompt] = 1
        packed = np.packbits(bits, bitorder="little").view("<i4")
        self.seen[reset.slot] = torch.from_numpy(packed).to(device, non_blocking=True)

    def apply(self, logits: Tensor, penalties: Penalties) -> None:
        """WRITES logits [Q, V] float32 in the penalised rows."""
        columns = (penalties.rows, penalties.slots, penalties.frequency, penalties.presence, penalties.repetition)
        rows, slots, frequency, presence, repetition = (
            torch.from_numpy(column).to(logits.device, non_blocking=True) for column in columns
        )
        self._kernel.penalise(logits, rows, slots, frequency, presence, repetition, self.counts, self.seen)

    def count(self, penalties: Penalties, tokens: Tensor) -> None:
        """tokens [Q] int64 were drawn."""
        device = self.counts.device
        rows, slots = (torch.from_numpy(column).to(device) for column in (penalties.rows, penalties.slots))
        self._kernel.count_tokens(self.counts, rows, slots, tokens)


def _num_words(vocab_size: int) -> int:
    return -(-vocab_size // 32)
