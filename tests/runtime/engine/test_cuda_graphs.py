"""Steps of a GPU, recorded and replayed: the same machinery, kernels in the interpreter, a host that records.

A toy model reads a token's embedding and its position; its attention is ours, over a pool.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from host_capture import HostCapture
from steps import make_batch
from torch import Tensor

from ramet.kernels import gpu_ops
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.triton import TritonAttention
from ramet.runtime.cache.pool import KVPool
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.graphs import GraphRecorder, PreparedDraws
from ramet.runtime.engine.inputs import SlotTable, StepGraphs, drawing, few_sizes_up_to, place
from ramet.runtime.sampling.columns import Penalties, PenaltyReset, SamplingColumns
from ramet.runtime.sampling.epilogue import RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue

CPU = torch.device("cpu")
ROWS, CONTEXT, VOCABULARY, HEADS, KV_HEADS, HEAD_DIM = 12, 64, 300, 4, 2, 16
LENGTHS = np.array([3, 40, 7, 33, 17, 1, 9, 33, 20, 5, 2, 50])


class Toy:
    """One layer of attention between an embedding and a head; rows as on a runner."""

    def __init__(self) -> None:
        chance = torch.Generator().manual_seed(0)
        size = (HEADS + 2 * KV_HEADS) * HEAD_DIM
        self.embedding = torch.randn(VOCABULARY, size, generator=chance)
        self.head = torch.randn(HEADS * HEAD_DIM, VOCABULARY, generator=chance) * 0.3
        angles = torch.outer(torch.arange(CONTEXT).float(), torch.rand(HEAD_DIM // 2, generator=chance))
        self.rope = angles.cos(), angles.sin()
        self.pool = KVPool(
            max_total_tokens=(ROWS + 1) * CONTEXT, page_size=1, layers=1, kv_heads=KV_HEADS, head_dim=HEAD_DIM,
            dtype=torch.float32, device=CPU,
        )  # fmt: skip
        self.attention = TritonAttention(self.pool, HEADS, [LayerAttention(HEAD_DIM**-0.5)], ROWS + 1)
        self.table, self.row_buffer = SlotTable(ROWS, CONTEXT, CPU), RowBuffer(ROWS + 1, CPU)
        self.epilogue = FusedEpilogue(ROWS + 1, self.row_buffer, VOCABULARY, CPU, gpu_ops)
        recorder = GraphRecorder(self.row_buffer, HostCapture())
        table = self.table.device
        self.graphs = StepGraphs(self.decode, PreparedDraws(self.epilogue), recorder, table, ROWS, few=True)
        rng = np.random.RandomState(1)
        self.tokens = {row: rng.randint(0, VOCABULARY, CONTEXT) for row in range(1, ROWS + 1)}
        self.slots = {row: 1 + row * CONTEXT + rng.permutation(CONTEXT) - CONTEXT for row in range(1, ROWS + 1)}
        for row in range(1, ROWS + 1):
            self.plain(self.batch([(row, 0, int(LENGTHS[row - 1]))]))

    def batch(self, parts: list[tuple[int, int, int]], **more: Any) -> Batch:
        return replace(make_batch(parts, self.tokens, self.slots), **more)

    def decoding(self, num: int, first: int = 1, later: int = 0, **more: Any) -> Batch:
        starts = [(row, int(LENGTHS[row - 1]) + later) for row in range(first, first + num)]
        return self.batch([(row, start, start + 1) for row, start in starts], **more)

    def decode(self, inputs: ForwardInputs) -> Tensor:
        self.attention.plan(self._on_gpu(inputs))
        return self.forward(inputs)

    def forward(self, inputs: ForwardInputs) -> Tensor:
        qkv = self.embedding[inputs.token_ids].view(-1, HEADS + 2 * KV_HEADS, HEAD_DIM)
        turning = HEADS + KV_HEADS
        positions = inputs.positions if inputs.shifted is None else inputs.shifted
        gpu_ops.place(qkv, HEADS, *self.rope, positions, None, *self.attention.cache(0), inputs.slots)
        q, k, v = qkv[:, :HEADS], qkv[:, HEADS:turning], qkv[:, turning:]
        return self.attention.forward(q, k, v, 0, inputs).flatten(1) @ self.head

    def _on_gpu(self, inputs: ForwardInputs) -> ForwardInputs:
        """On the host a step's columns are numpy's as well; a GPU's lie on the device alone."""
        return replace(inputs, placed=(torch.from_numpy(inputs.rows), torch.from_numpy(inputs.seq_lens)))

    def plain(self, batch: Batch) -> Tensor:
        """Logits, computed anew."""
        self.epilogue.prepare(batch.penalty_resets)
        self.table.update(batch)
        inputs = place(batch, self.table, self.row_buffer, CPU)
        self.attention.plan(inputs)
        return self.forward(inputs)[inputs.last_tokens]

    def drawn_plainly(self, batch: Batch) -> list[int]:
        rows = torch.from_numpy(batch.rows.astype(np.int64))
        return self.epilogue.run(self.plain(batch), batch.sampling, rows).tokens.tolist()

    def replayed(self, batch: Batch, draws: bool = False) -> Any:
        self.epilogue.prepare(batch.penalty_resets)
        self.table.update(batch, new_tokens=False)
        begun = self.graphs.begin(batch, draws)
        assert begun is not None
        return begun.drawn()[0].tolist() if draws else begun.logits().clone()


@pytest.fixture(scope="module")
def both() -> tuple[Toy, Toy]:
    return Toy(), Toy()


@pytest.mark.parametrize("num", [1, 2, 3, 7, 8, 12])
def test_a_replayed_step_computes_what_a_plain_one_does(both: tuple[Toy, Toy], num: int) -> None:
    replayed, plain = both
    first = ROWS - num + 1
    expected = plain.plain(plain.decoding(num, first))
    for _ in range(2):  # the second time, for sure, it is a replay
        found = replayed.replayed(replayed.decoding(num, first))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_second_plan_attends_for_rows_that_draw_alone() -> None:
    """As a model's last layer does: keys and values are there by then."""
    toy = Toy()
    batch = toy.batch([(1, 3, 10), (2, 40, 41), (4, 33, 34), (5, 17, 30)], draws=np.array([0, 1, 3], np.int32))
    of_all = toy.plain(batch)
    inputs = place(batch, toy.table, toy.row_buffer, CPU)
    wanted = drawing(inputs, batch.draws)
    toy.attention.plan(wanted)
    torch.testing.assert_close(toy.forward(wanted), of_all, rtol=1e-5, atol=1e-5)


def test_a_relayed_row_reads_what_it_drew_last(both: tuple[Toy, Toy]) -> None:
    """Four steps behind one another, of which the host knows no token; the plain ones read what was drawn."""
    replayed, plain = both
    rows = np.arange(4, dtype=np.int32)
    expected, found = [plain.drawn_plainly(plain.decoding(4, 2))], [replayed.replayed(replayed.decoding(4, 2), True)]
    for later in range(1, 4):
        for row, token in enumerate(expected[-1], 2):
            plain.tokens[row] = plain.tokens[row].copy()
            plain.tokens[row][LENGTHS[row - 1] + later] = token
        expected.append(plain.drawn_plainly(plain.decoding(4, 2, later)))
        unknown = replayed.decoding(4, 2, later, relayed=rows)
        found.append(replayed.replayed(replace(unknown, token_ids=np.zeros(4, np.int32)), True))
    assert found == expected


def test_drawn_and_penalised_as_plain_steps_are(both: tuple[Toy, Toy]) -> None:
    replayed, plain = both
    rng, num = np.random.default_rng(5), 6
    penalties = Penalties(
        rows=np.array([1, 4], np.int32), slots=np.array([3, 1], np.int32), frequency=np.array([0.7, 0.1], np.float32),
        presence=np.array([0.3, 2.0], np.float32), repetition=np.array([1.5, 1.0], np.float32),
    )  # fmt: skip
    resets = tuple(PenaltyReset(slot, rng.integers(0, 300, 40).astype(np.int32), np.arange(9)) for slot in (1, 3))
    sampling = SamplingColumns(
        rng.choice([0.0, 0.7, 1.5], num).astype(np.float32), np.zeros(num, np.int64), np.ones(num, np.float32),
        np.zeros(num, np.float32), rng.integers(0, 1 << 64, num, dtype=np.uint64), rng.integers(0, 500, num),
    )  # fmt: skip
    for columns in (replace(sampling, penalties=penalties), sampling, replace(sampling, penalties=penalties)):
        of = {"sampling": columns, "penalty_resets": resets}
        expected = plain.drawn_plainly(plain.decoding(num, **of))
        assert replayed.replayed(replayed.decoding(num, **of), draws=True) == expected
        counts = [toy.epilogue._penalties.counts for toy in both]
        assert torch.equal(*counts)


def test_logits_of_a_step_stay_when_the_next_one_is_begun(both: tuple[Toy, Toy]) -> None:
    """Its draw may still look at them, and write there what a mask forbids."""
    replayed, _ = both
    replayed.table.update(replayed.decoding(3), new_tokens=False)
    first = replayed.graphs.begin(replayed.decoding(3), draws=False)
    assert first is not None
    logits = first.logits()
    kept = logits.clone()
    second = replayed.graphs.begin(replayed.decoding(3, 5), draws=False)
    assert second is not None and torch.equal(logits, kept)
    logits.fill_(-torch.inf)
    assert torch.isfinite(second.logits()).all()


def test_all_are_prepared_the_largest_first() -> None:
    toy = Toy()
    toy.graphs.prepare_all()
    assert list(toy.graphs._prepared) == few_sizes_up_to(ROWS)[::-1]


@pytest.mark.parametrize("most", [1, 3, 8, 100, 256, 300, 513, 4096])
def test_few_sizes_reach_the_largest(most: int) -> None:
    sizes = few_sizes_up_to(most)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most and sizes[0] == 1
    assert len(sizes) <= 25 + most // 128
