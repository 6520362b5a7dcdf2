"""Steps by the kernels for a GPU, in the interpreter, equal the reference's: rows that share, decode and extend."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ramet.kernels import reference
from ramet.kernels.shared_attention import MIN_SHARERS
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.reference import ReferenceAttention
from ramet.runtime.attention.triton import TritonAttention
from ramet.runtime.cache.pool import KVPool, KVShape

HEADS, KV_HEADS, HEAD_DIM, SHARED = 4, 2, 16, 530
LAYERS = [LayerAttention(0.25), LayerAttention(0.25, window=300), LayerAttention(0.25, softcap=3.0)]


class Steps:
    """Rows of `lengths` tokens, the last `num_new` new; long ones have their first SHARED slots in common."""

    def __init__(self, lengths: list[int], num_new: list[int], dtype: torch.dtype | None = None) -> None:
        chance = torch.Generator().manual_seed(3)
        num_slots = sum(lengths) + 1
        order = (torch.randperm(num_slots - 1, generator=chance) + 1).int()
        self.pool = KVPool(
            max_total_tokens=num_slots,
            page_size=1,
            layers=[KVShape.of(KV_HEADS, HEAD_DIM)] * len(LAYERS),
            dtype=dtype or torch.float32,
            device=torch.device("cpu"),
        )
        table = torch.zeros((len(lengths) + 1, max(lengths)), dtype=torch.int32)
        starts = np.cumsum(lengths) - lengths
        for row, (start, length) in enumerate(zip(starts.tolist(), lengths, strict=True), 1):
            table[row, :length] = order[start : start + length]
            if length > SHARED + 1:
                table[row, :SHARED] = order[:SHARED]
        new = [table[row, n - k : n] for row, (n, k) in enumerate(zip(lengths, num_new, strict=True), 1)]
        self.qkv = torch.randn(sum(num_new), HEADS + 2 * KV_HEADS, HEAD_DIM, generator=chance)
        self.inputs = ForwardInputs(
            token_ids=torch.zeros(sum(num_new), dtype=torch.int64),
            positions=torch.zeros(sum(num_new), dtype=torch.int64),
            slots=torch.cat(new).long(),
            last_tokens=torch.zeros(0, dtype=torch.int64),
            table=table,
            rows=np.arange(1, len(lengths) + 1, dtype=np.int32),
            num_new=np.array(num_new, np.int32),
            seq_lens=np.array(lengths, np.int32),
            num_decode=num_new.count(1),
        )
        every = torch.arange(num_slots + 1)[1:]
        for keys, values in zip(self.pool.keys, self.pool.values, strict=True):
            k, v = torch.randn(2, num_slots, KV_HEADS, HEAD_DIM, generator=chance)
            reference.store_kv(k, v, keys, values, every)
            reference.store_kv(*self._new_kv(), keys, values, self.inputs.slots)

    def _new_kv(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.qkv[:, HEADS : HEADS + KV_HEADS], self.qkv[:, HEADS + KV_HEADS :]

    def agree(self, ours: TritonAttention, inputs: ForwardInputs) -> None:
        theirs = ReferenceAttention(self.pool, LAYERS)
        ours.plan(inputs)
        theirs.plan(inputs)
        for layer in range(len(LAYERS)):
            found, expected = (
                each.forward(self.qkv[:, :HEADS], *self._new_kv(), layer, inputs) for each in (ours, theirs)
            )
            torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [None, torch.float8_e4m3fn])
@pytest.mark.parametrize("sharers", [MIN_SHARERS - 1, MIN_SHARERS + 1])
def test_rows_that_share_a_prefix_beside_rows_that_extend_it(sharers: int, dtype: torch.dtype | None) -> None:
    decoding = [SHARED + 20 + 9 * i for i in range(sharers)] + [3, 40]
    steps = Steps([*decoding, SHARED + 30, 12], [1] * len(decoding) + [30, 12], dtype)
    ours = TritonAttention(steps.pool, HEADS, LAYERS, len(decoding) + 2)
    steps.agree(ours, steps.inputs)
    assert ours._shares and bool(ours.rows.scratch.shared.shared[: len(decoding)].any()) == (sharers >= MIN_SHARERS)


def test_a_step_that_is_replayed_finds_the_rows_of_each_time() -> None:
    """What is shared is read from the device: the same launches serve rows that share and rows that do not."""
    lengths = [SHARED + 20 + 9 * i for i in range(MIN_SHARERS)]
    steps = Steps(lengths, [1] * len(lengths))
    rows, seq_lens = torch.from_numpy(steps.inputs.rows), torch.from_numpy(steps.inputs.seq_lens)
    placed = replace(steps.inputs, placed=(rows, seq_lens))
    ours = TritonAttention(steps.pool, HEADS, LAYERS, len(lengths))
    steps.agree(ours, placed)
    assert ours.rows.scratch.shared.shared.sum() == MIN_SHARERS * 2
    steps.inputs.table[1, 5] = steps.inputs.table[1, SHARED + 2]  # the first row's first chunk is another one now
    steps.agree(ours, placed)
    assert (
        ours.rows.scratch.shared.shared[:, 0].sum() == 0 and ours.rows.scratch.shared.shared[:, 1].sum() == MIN_SHARERS
    )
