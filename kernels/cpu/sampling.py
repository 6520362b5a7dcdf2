"""Where a CPU draws tokens, by compiled kernels: masks.cpp, penalties.cpp, draw.cpp and scores.cpp.

Q rows of logits, V vocabulary, M rows that remember what they read next. All tensors are contiguous.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.cpu.calls import NativeCalls
from ramet.kernels.cpu.native import Ints, column
from ramet.kernels.draw_params import DrawParams


@dataclass(frozen=True, slots=True)
class DecodingRows:
    """Rows [Q] of a step that decode, each column int32 on the host."""

    rows: Ints  # of the M
    relayed: Ints  # 1: the row reads the token that it drew last, at the end of its length
    seq_lens: Ints  # of rows that are not relayed
    position_offsets: Ints


class SamplingOps(NativeCalls):
    """Fits the SamplingKernel of the epilogue."""

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
    ) -> None:
        """As kernels/reference.py. WRITES logits [Q, V] float32 in `rows`."""
        _assert_contiguous(logits, rows, slots, frequency, presence, repetition, counts, seen)
        self.native.penalise(
            logits, logits.shape[1], rows, slots, frequency, presence, repetition, len(rows), counts, seen,
            seen.shape[1], self.threads,
        )  # fmt: skip

    def count_tokens(self, counts: Tensor, rows: Tensor, slots: Tensor, tokens: Tensor) -> None:
        """As kernels/reference.py. WRITES counts."""
        _assert_contiguous(counts, rows, slots, tokens)
        self.native.count_tokens(counts, counts.shape[1], rows, slots, tokens, len(rows))

    def mask(self, logits: Tensor, rows: Tensor, allowed: Tensor) -> None:
        """As kernels/reference.py. WRITES logits [Q, V] float32 in `rows`."""
        _assert_contiguous(logits, rows, allowed)
        num, words = allowed.shape
        assert num == len(rows) and words * 32 >= logits.shape[1], (allowed.shape, logits.shape)
        self.native.mask(logits, logits.shape[1], rows, num, allowed, words, self.threads)

    def draw(self, logits: Tensor, params: DrawParams[Tensor], positions: Tensor) -> tuple[Tensor, Tensor]:
        """As kernels/reference.py; logits [Q, V] float32."""
        assert logits.is_contiguous(), logits.stride()
        num, vocabulary = logits.shape
        tokens, finite = self.empty(num, dtype=torch.int64), self.empty(num, dtype=torch.bool)
        self.native.draw(
            logits, vocabulary, num, params.temperature, params.top_k, params.top_p, params.min_p, params.seeds,
            positions, tokens, finite, self.threads,
        )  # fmt: skip
        return tokens, finite

    def advance(self, rows: Tensor, tokens: Tensor, next_ids: Tensor, lengths: Tensor) -> None:
        """As kernels/reference.py. WRITES next_ids and lengths."""
        self.native.advance(rows, tokens, len(rows), next_ids, lengths)

    def relay(
        self, of: DecodingRows, next_ids: Tensor, lengths: Tensor, ids: Tensor, positions: Tensor, shifted: Tensor
    ) -> None:
        """Rows that are relayed read next_ids [M] at the end of lengths [M], int32; the others have their seq_lens.

        WRITES ids, positions and shifted [Q] int64, and lengths.
        """
        rows, relayed, seq_lens, offsets = map(column, (of.rows, of.relayed, of.seq_lens, of.position_offsets))
        self.native.relay(rows, relayed, seq_lens, offsets, len(of.rows), next_ids, lengths, ids, positions, shifted)

    def normalise(
        self, logits: Tensor, rows: Tensor, temperature: Tensor, num_top: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As kernels/reference.py; logits [Q, V] float32."""
        _assert_contiguous(logits)
        (_, vocabulary), num = logits.shape, len(rows)
        best, log_sums, tokens = torch.empty(num), torch.empty(num), torch.empty((num, num_top), dtype=torch.int64)
        self.native.normalise(logits, vocabulary, rows, temperature, num, num_top, best, log_sums, tokens, self.threads)
        return best, log_sums, tokens


def _assert_contiguous(*tensors: Tensor) -> None:
    assert all(tensor.is_contiguous() for tensor in tensors), [tensor.stride() for tensor in tensors]
