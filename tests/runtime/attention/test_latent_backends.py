"""Attention to latents by our kernel equals plain torch, whether a row meets latents or has them expanded."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compiled import compiled_kernels

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_backends_agree import TOLERANCE, Rows, step

from ramet.kernels import reference
from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.attention.latent import LatentReference, LatentSizes, expanded_bytes, expands, most_expanded
from ramet.runtime.attention.latent_cpu import LatentCpuAttention
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.layers.latent_attention import LatentSelfAttention
from ramet.runtime.layers.modules import pack_linears
from ramet.runtime.weights.packing import packer_of

pytestmark = pytest.mark.usefixtures("two_threads")

SMALL = LatentSizes(latent=40, rotated=16, content=24, value=20, query_latent=None)
LITE = LatentSizes(latent=512, rotated=64, content=128, value=128, query_latent=None)


def layer_of(sizes: LatentSizes, heads: int, dtype: torch.dtype, ops: Any) -> LatentSelfAttention:
    layer = LatentSelfAttention(0, size=32, heads=heads, sizes=sizes, bias=False, dtype=dtype, ops=ops)
    generator = torch.Generator().manual_seed(3)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
    layer.absorb()
    return layer


def check(
    rows: Rows,
    sizes: LatentSizes = SMALL,
    *,
    heads: int = 4,
    dtype: torch.dtype = torch.float32,
    shared: int = 0,
    page_size: int = 1,
) -> LatentCpuAttention:
    """A layer of the same weights over the same pool by both backends."""
    inputs, num_slots = step(rows, shared, seed=len(rows), page_size=page_size)
    ops, outs = compiled_kernels(), []
    x = torch.randn(inputs.num_tokens, 32, generator=torch.Generator().manual_seed(5)).to(dtype)
    angles = torch.outer(torch.arange(2048.0), 1e4 ** -torch.linspace(0, 1, sizes.rotated // 2))
    rope, rules = (angles.cos(), angles.sin()), [LayerAttention(sizes.query**-0.5, value_size=sizes.latent)]
    cached = torch.randn(num_slots + 1, 1, sizes.key, generator=torch.Generator().manual_seed(6))
    backend: Any = None
    for kernels in (reference, ops):
        pool = KVPool(
            max_total_tokens=num_slots, page_size=1, layers=[KVShape(1, sizes.key, 0)], dtype=dtype,
            device=torch.device("cpu"),
        )  # fmt: skip
        pool.keys[0].copy_(cached)
        layer = layer_of(sizes, heads, dtype, kernels)
        if kernels is ops:
            pack_linears(layer, packer_of("plain", 128, ops), packer_of("plain", 128, ops))
            backend = LatentCpuAttention(pool, heads, rules, sizes, ops)
        else:
            backend = LatentReference(pool, rules, sizes)
        backend.plan(inputs)
        outs.append((layer(x, rope, backend, inputs), pool.keys[0]))
    (wanted, pool_wanted), (out, pool_out) = outs
    torch.testing.assert_close(out, wanted, rtol=2 * TOLERANCE[dtype], atol=2 * TOLERANCE[dtype])
    torch.testing.assert_close(pool_out, pool_wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    return backend


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cached", [0, 1, 31, 32, 33, 127, 700])
def test_a_row_that_decodes(cached: int, dtype: torch.dtype) -> None:
    check([(cached, 1)], dtype=dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_sizes_of_published_models(dtype: torch.dtype) -> None:
    assert check([(300, 1), (5, 1), (40, 3), (0, 70)], LITE, heads=16, dtype=dtype)._expanded


@pytest.mark.parametrize("heads", [1, 2, 7, 16, 17, 33, 128])
def test_any_number_of_heads(heads: int) -> None:
    check([(140, 1), (3, 1), (33, 5), (0, 40)], heads=heads)


@pytest.mark.parametrize("new", [2, 31, 33, 130])
@pytest.mark.parametrize("cached", [0, 5, 200, 900])
def test_new_tokens_see_those_before_them(cached: int, new: int) -> None:
    check([(cached, new)])


def test_prompts_of_both_kinds_beside_rows_that_decode() -> None:
    rows = [(129, 1), (0, 1), (900, 2), (0, 64), (700, 3), (10, 129)]
    backend = check(rows, page_size=16)
    assert [(row.first, row.stop) for row in backend._expanded] == [(4, 68), (71, 200)]


@pytest.mark.parametrize("shared", [64, 200])
def test_rows_that_share_a_prefix(shared: int) -> None:
    check([(shared + 9, 1), (shared, 1), (shared + 70, 1), (shared + 3, 5)], heads=16, shared=shared)


def test_weights_of_heads_in_one_tensor_give_the_same() -> None:
    """As on a GPU: one product for all heads leaves them before tokens in memory."""
    inputs, num_slots = step([(40, 1), (3, 5)], 0, seed=2)
    pool = KVPool(
        max_total_tokens=num_slots, page_size=1, layers=[KVShape(1, SMALL.key, 0)], dtype=torch.float32,
        device=torch.device("cpu"),
    )  # fmt: skip
    x = torch.randn(inputs.num_tokens, 32, generator=torch.Generator().manual_seed(5))
    ones = torch.ones(64, SMALL.rotated // 2)
    backend = LatentReference(pool, [LayerAttention(1.0, value_size=SMALL.latent)], SMALL)
    backend.plan(inputs)
    layer = layer_of(SMALL, 4, torch.float32, reference)
    apart = layer(x, (ones, ones * 0), backend, inputs)
    layer.to_latents.stack()
    layer.from_latents.stack()
    torch.testing.assert_close(layer(x, (ones, ones * 0), backend, inputs), apart)


def test_a_row_is_expanded_where_that_takes_fewer_products() -> None:
    def counted(new: int, cached: int) -> tuple[int, int]:
        pairs = sum(cached + i + 1 for i in range(new))
        of_latent = LITE.latent * LITE.expanded
        met = pairs * (LITE.key + LITE.latent) + new * of_latent
        return met, pairs * (LITE.query + LITE.value) + (new + cached) * of_latent

    rows = [(1, 0), (1, 50), (100, 0), (100, 1000), (160, 4000), (180, 4000), (512, 30000)]
    new, lens = np.array([n for n, _ in rows], np.int32), np.array([n + c for n, c in rows], np.int32)
    assert expands(new, lens, LITE).tolist() == [met > expanded for met, expanded in (counted(*row) for row in rows)]
    assert set(expands(new, lens, LITE).tolist()) == {True, False}


def test_what_is_expanded_is_bounded() -> None:
    """A row beyond the bound meets latents; the memory plan counts one at the bound."""
    heads, most = 128, most_expanded(128, LITE, 2)
    assert most == 1024 and expanded_bytes(1 << 20, heads, LITE, 2) == most * (576 + 128 * 256) * 2
    assert expanded_bytes(10, heads, LITE, 2) == 10 * (576 + 128 * 256) * 2
