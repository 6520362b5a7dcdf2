"""A layer over latents by the kernels for a GPU, in the interpreter, equals plain torch, however it is planned."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_backends_agree import TOLERANCE, Rows, step
from test_latent_backends import SMALL, layer_of

from ramet.kernels import gpu_ops, reference
from ramet.kernels.attention_call import Extends
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.latent import LatentBackend, LatentReference
from ramet.runtime.attention.latent_triton import LatentTritonAttention
from ramet.runtime.cache.pool import KVPool, KVShape

HEADS = 4
RULES = [LayerAttention(SMALL.query**-0.5, value_size=SMALL.latent)]
MIXED = [(129, 1), (0, 1), (600, 1), (40, 3), (0, 70), (700, 33)]


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


class Layer:
    """The same weights over the same pool, for either way."""

    def __init__(self, rows: Rows, page_size: int = 1, dtype: torch.dtype = torch.float32) -> None:
        self.inputs, self._num_slots = step(rows, 0, seed=len(rows), page_size=page_size)
        self._dtype = dtype
        chance = torch.Generator().manual_seed(6)
        self.x = torch.randn(self.inputs.num_tokens, 32, generator=chance).to(dtype)
        self._cached = torch.randn(self._num_slots + 1, 1, SMALL.key, generator=chance)
        angles = torch.outer(torch.arange(2048.0), 1e4 ** -torch.linspace(0, 1, SMALL.rotated // 2))
        self._rope = angles.cos(), angles.sin()

    def pool(self) -> KVPool:
        pool = KVPool(
            max_total_tokens=self._num_slots, page_size=1, layers=[KVShape(1, SMALL.key, 0)], dtype=self._dtype,
            device=torch.device("cpu"),
        )  # fmt: skip
        pool.keys[0].copy_(self._cached)
        return pool

    def by(self, backend: LatentBackend, ops: object, inputs: ForwardInputs) -> Tensor:
        layer = layer_of(SMALL, HEADS, self._dtype, ops)
        if ops is gpu_ops:
            layer.to_latents.stack()  # as on a GPU
            layer.from_latents.stack()
        backend.plan(inputs)
        return layer(self.x, self._rope, backend, inputs)

    def check(self, inputs_of: Callable[[LatentTritonAttention, ForwardInputs], ForwardInputs]) -> None:
        """`inputs_of` a backend: the step as it is to be planned."""
        pools = self.pool(), self.pool()
        wanted = self.by(LatentReference(pools[0], RULES, SMALL), reference, self.inputs)
        ours = LatentTritonAttention(pools[1], HEADS, RULES, SMALL, len(self.inputs.rows))
        found = self.by(ours, gpu_ops, inputs_of(ours, self.inputs))
        near = 2 * TOLERANCE[self._dtype]
        torch.testing.assert_close(found, wanted, rtol=near, atol=near)
        torch.testing.assert_close(pools[1].keys[0], pools[0].keys[0], rtol=near, atol=near)


@pytest.mark.parametrize(("page_size", "dtype"), [(1, torch.float32), (16, torch.bfloat16)], ids=str)
def test_rows_that_decode_beside_rows_that_extend(page_size: int, dtype: torch.dtype) -> None:
    Layer(MIXED, page_size, dtype).check(lambda _, inputs: inputs)


def test_rows_that_a_graph_of_decode_steps_reads_on_the_device() -> None:
    def placed(_: LatentTritonAttention, inputs: ForwardInputs) -> ForwardInputs:
        return replace(inputs, placed=(torch.from_numpy(inputs.rows), torch.from_numpy(inputs.seq_lens)))

    Layer([(129, 1), (0, 1), (600, 1)]).check(placed)


def test_rows_that_a_graph_with_prompts_reads_on_the_device() -> None:
    """Those that decode are prompts of one token there, and the tiles of padding belong to a row without any."""

    def placed(ours: LatentTritonAttention, inputs: ForwardInputs) -> ForwardInputs:
        num = len(inputs.rows)
        firsts = np.cumsum(inputs.num_new, dtype=np.int32) - inputs.num_new
        columns = [np.append(each, np.int32(0)) for each in (inputs.rows, firsts, inputs.num_new, inputs.seq_lens)]
        tiles = ours.rows.tiles(inputs.num_new, inputs.seq_lens)
        padded = (np.append(tiles[0], np.int32([num, num])), np.append(tiles[1], np.int32([0, 0])))
        return replace(inputs, num_decode=0, extends=Extends(*map(torch.from_numpy, (*columns, *padded))))

    Layer(MIXED).check(placed)


def test_queries_that_meet_latents_are_what_the_reference_takes() -> None:
    """Both parts of a query lie in one tensor here."""
    layer = Layer(MIXED)
    q = torch.randn(layer.inputs.num_tokens, HEADS, SMALL.key, generator=torch.Generator().manual_seed(8))
    pool = layer.pool()
    outs = []
    for backend in (LatentReference(pool, RULES, SMALL), LatentTritonAttention(pool, HEADS, RULES, SMALL, 6)):
        backend.plan(layer.inputs)
        outs.append(backend.meet(*q.split((SMALL.latent, SMALL.rotated), dim=2), 0, layer.inputs))
        assert [each.shape for each in backend.cache(0)] == [(len(pool.keys[0]), 1, n) for n in (SMALL.key, 40)]
    torch.testing.assert_close(outs[1], outs[0], rtol=2e-5, atol=2e-5)
