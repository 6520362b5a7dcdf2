"""A model for steps of a GPU: a token's embedding and its position, one layer of our attention over a pool, a head."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from recording_device import CUDA
from steps import make_batch
from torch import Tensor

from ramet.kernels import gpu_ops
from ramet.kernels.reference import RopeTables
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.triton import TritonAttention
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.devices.cuda import CudaDevice
from ramet.runtime.engine.inputs import SlotTable, place
from ramet.runtime.engine.prepared import StepGraphs
from ramet.runtime.sampling.epilogue import RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue

ROWS, CONTEXT, VOCABULARY, HEADS, KV_HEADS, HEAD_DIM = 12, 64, 300, 4, 2, 16
LENGTHS = np.array([3, 40, 7, 33, 17, 1, 9, 33, 20, 5, 2, 50])


class Toy:
    """On a recording device, rows as on a runner: each has LENGTHS of it tokens."""

    def __init__(self) -> None:
        chance = torch.Generator().manual_seed(0)
        size = (HEADS + 2 * KV_HEADS) * HEAD_DIM
        self.embedding = torch.randn(VOCABULARY, size, generator=chance).to(CUDA)
        self.head = (torch.randn(HEADS * HEAD_DIM, VOCABULARY, generator=chance) * 0.3).to(CUDA)
        angles = torch.outer(torch.arange(CONTEXT).float(), torch.rand(HEAD_DIM // 2, generator=chance))
        self.rope = RopeTables(angles.cos().to(CUDA), angles.sin().to(CUDA))
        self.pool = KVPool(
            max_total_tokens=(ROWS + 1) * CONTEXT, page_size=1, layers=[KVShape.of(KV_HEADS, HEAD_DIM)],
            dtype=torch.float32, device=CUDA,
        )  # fmt: skip
        self.attention = TritonAttention(self.pool, HEADS, [LayerAttention(HEAD_DIM**-0.5)], ROWS + 1)
        self.table, self.row_buffer = SlotTable(ROWS, CONTEXT, CUDA), RowBuffer(ROWS + 1, CUDA)
        self.epilogue = FusedEpilogue(ROWS + 1, self.row_buffer, VOCABULARY, CUDA, gpu_ops)
        table = self.table.device
        self.device = CudaDevice()
        self.graphs = StepGraphs(self.device, self.decode, self.epilogue, self.row_buffer, table, ROWS)
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
        self.attention.plan(inputs)
        return self.forward(inputs)

    def forward(self, inputs: ForwardInputs) -> Tensor:
        qkv = self.embedding[inputs.token_ids].view(-1, HEADS + 2 * KV_HEADS, HEAD_DIM)
        turning = HEADS + KV_HEADS
        positions = inputs.positions if inputs.rope_positions is None else inputs.rope_positions
        gpu_ops.norm_rope_store(qkv, HEADS, self.rope, positions, None, *self.attention.cache(0), inputs.slots)
        q, k, v = qkv[:, :HEADS], qkv[:, HEADS:turning], qkv[:, turning:]
        return self.attention.forward(q, k, v, 0, inputs).flatten(1) @ self.head

    def plain(self, batch: Batch) -> Tensor:
        """Logits, computed anew."""
        inputs = self.placed(batch)
        return self.decode(inputs)[inputs.last_tokens]

    def placed(self, batch: Batch) -> ForwardInputs:
        for reset in batch.before:
            self.epilogue.reset_penalties(reset)
        self.table.update(batch)
        return place(batch, self.table, self.row_buffer, CUDA)

    def drawn_plainly(self, batch: Batch) -> list[int]:
        rows = torch.from_numpy(batch.rows.astype(np.int64)).to(CUDA)
        return self.epilogue.run(self.plain(batch), batch.sampling, rows).tokens.tolist()

    def replayed(self, batch: Batch, draws: bool = False) -> Any:
        for reset in batch.before:
            self.epilogue.reset_penalties(reset)
        self.table.update(batch, prepared=True)
        begun = self.graphs.begin(batch, draws)
        assert begun is not None
        return begun.drawn()[0].tolist() if draws else begun.logits().clone()
