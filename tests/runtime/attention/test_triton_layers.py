"""Layers of several shapes, shared keys and sinks by kernels for a GPU, in the interpreter, equal the reference."""

import numpy as np
import pytest
import torch

from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.reference import ReferenceAttention
from ramet.runtime.attention.triton import TritonAttention
from ramet.runtime.cache.pool import KVPool, KVShape

HEADS = 4
SHAPES = [KVShape.of(2, 16), KVShape.of(1, 32), KVShape.of(0, 32)]
LAYERS = [LayerAttention(0.3, window=40, sinks=True), LayerAttention(0.2), LayerAttention(0.2, keys_of=1)]


@pytest.mark.parametrize("rows", [[(70, 1), (3, 1)], [(600, 1)] * 9 + [(50, 7), (0, 70)]], ids=["few", "many"])
def test_every_layer_reads_its_own_heads_or_those_it_names(rows: list[tuple[int, int]]) -> None:
    chance = torch.Generator().manual_seed(2)
    lengths, num_new = [cached + new for cached, new in rows], [new for _, new in rows]
    total = sum(lengths) + 1
    order = (torch.randperm(total - 1, generator=chance) + 1).int()
    table, slots, start = torch.zeros((len(rows) + 1, max(lengths)), dtype=torch.int32), [], 0
    for row, (length, new) in enumerate(zip(lengths, num_new, strict=True), 1):
        table[row, :length] = order[start : start + length]
        if length == 601:
            table[row, :560] = order[:560]
        slots.append(table[row, length - new : length])
        start += length
    inputs = ForwardInputs(
        token_ids=torch.zeros(sum(num_new), dtype=torch.int64),
        positions=torch.zeros(sum(num_new), dtype=torch.int64),
        slots=torch.cat(slots).long(),
        last_tokens=torch.zeros(0, dtype=torch.int64),
        table=table,
        rows=np.arange(1, len(rows) + 1, dtype=np.int32),
        num_new=np.array(num_new, np.int32),
        seq_lens=np.array(lengths, np.int32),
        num_decode=num_new.count(1),
    )
    of = dict(page_size=1, layers=SHAPES, dtype=torch.float32, device=torch.device("cpu"))
    pool = KVPool(max_total_tokens=total, **of)
    for each in (*pool.keys, *pool.values):
        each.normal_(generator=chance)
    backends = ReferenceAttention(pool, LAYERS), TritonAttention(pool, HEADS, LAYERS, 16)
    for backend in backends:
        backend.plan(inputs)
    for i, layer in enumerate(LAYERS):
        q = torch.randn(inputs.num_tokens, HEADS, SHAPES[layer.source(i)].key, generator=chance)
        new = [each[inputs.slots] for each in pool.of(i)] if layer.keys_of is None else (None, None)
        sinks = torch.randn(HEADS, generator=chance) * 2 if layer.sinks else None
        expected, found = (backend.forward(q, *new, i, inputs, sinks) for backend in backends)
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
