"""Every way to compute attention against the reference: odd lengths, groups, dtypes, prefixes, mixed batches."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from compiled import compiled_kernels

from ramet.kernels import reference
from ramet.kernels.attention_call import AttendCall, AttentionRule
from ramet.runtime.attention.base import AttentionBackend, ForwardInputs, LayerAttention
from ramet.runtime.attention.cpu import CpuAttention
from ramet.runtime.attention.gathered import GatheredAttention
from ramet.runtime.attention.reference import ReferenceAttention
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.engine.devices.cpu_kernels import machine, use

pytestmark = pytest.mark.usefixtures("two_threads")

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
Rows = list[tuple[int, int]]  # (cached, new) tokens of each row, decoding rows first


def step(rows: Rows, shared: int, seed: int, page_size: int = 1) -> tuple[ForwardInputs, int]:
    """Rows over scattered pages, the first `shared` cached tokens of each being the same slots; and the slot count."""
    random = np.random.RandomState(seed)
    longest = max(cached + new for cached, new in rows)
    num_pages = 1 + -(-shared // page_size) + sum(-(-(cached + new) // page_size) for cached, new in rows)
    num_slots = num_pages * page_size
    pages = iter(1 + random.permutation(num_pages - 1).astype(np.int32))

    def take(num: int) -> list[np.int32]:
        """So many slots of whole pages."""
        taken = [next(pages) for _ in range(-(-num // page_size))]
        return [page * page_size + i for page in taken for i in range(page_size)][:num]

    common = take(shared)
    table = random.randint(0, num_slots, (len(rows) + 1, longest + 5)).astype(np.int32)  # old slots behind each end
    slots, positions = [], []
    for r, (cached, new) in enumerate(rows):
        own = common[:cached] + take(cached + new - min(cached, shared))
        table[r + 1, : cached + new] = own
        slots += own[cached:]
        positions += range(cached, cached + new)
    num_new = np.array([new for _, new in rows], np.int32)
    inputs = ForwardInputs(
        token_ids=torch.zeros(len(slots), dtype=torch.int64),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots, dtype=torch.int64),
        last_tokens=torch.zeros(0, dtype=torch.int64),
        table=torch.from_numpy(table),
        rows=np.arange(1, len(rows) + 1, dtype=np.int32),
        num_new=num_new,
        seq_lens=np.array([cached + new for cached, new in rows], np.int32),
        num_decode=int((num_new == 1).sum()),
    )
    return inputs, num_slots


def stored_and_attended(
    backend: AttentionBackend,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layer: int,
    inputs: ForwardInputs,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """As a layer does it."""
    reference.store_kv(k, v, *backend.cache(layer), inputs.slots)
    return backend.forward(q, k, v, layer, inputs, sinks)


def check(
    rows: Rows,
    *,
    heads=4,
    kv_heads=2,
    head_dim=32,
    dtype=torch.float32,
    shared=0,
    compiled=True,
    window=None,
    softcap=None,
    cache=None,
    page_size=1,
    sinks=False,
    ahead=(),
) -> None:
    """`ahead`: spans of the T new tokens that see each other."""
    inputs, num_slots = step(rows, shared, seed=len(rows), page_size=page_size)
    if ahead:
        key_ends = inputs.positions.numpy().astype(np.int32) + 1
        for first, stop in ahead:
            key_ends[first:stop] = key_ends[stop - 1]
        inputs = replace(inputs, key_ends=key_ends)
    generator = torch.Generator().manual_seed(7)
    pools = [
        KVPool(
            max_total_tokens=num_slots,
            page_size=1,
            layers=[KVShape.of(kv_heads, head_dim)] * 2,
            dtype=cache or dtype,
            device=torch.device("cpu"),
        )
        for _ in range(3)
    ]
    for tensors in ("keys", "values"):
        for layer in zip(*(getattr(pool, tensors) for pool in pools), strict=True):
            numbers = torch.randn(*layer[0].shape[:2], head_dim, generator=generator)
            for each in layer:
                each.copy_(reference.quantised(numbers) if cache else numbers)
    qkv = torch.randn(inputs.num_tokens, heads + 2 * kv_heads, head_dim, generator=generator).to(dtype)
    q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
    ops = compiled_kernels() if compiled else None
    rules = [LayerAttention(1.0), LayerAttention(head_dim**-0.5, window, softcap)]
    expected = ReferenceAttention(pools[0], rules)
    expected.plan(inputs)
    of_heads = torch.randn(heads, generator=generator) * 2 if sinks else None
    expected_out = stored_and_attended(expected, q, k, v, 1, inputs, of_heads)
    for kind, pool in zip((CpuAttention, GatheredAttention)[: 1 if cache else 2], pools[1:], strict=False):
        backend = kind(pool, heads, rules, ops)
        backend.plan(inputs)
        out = stored_and_attended(backend, q, k, v, 1, inputs, of_heads)
        torch.testing.assert_close(out, expected_out, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        assert torch.equal(pool.keys[1], pools[0].keys[1]) and torch.equal(pool.values[1], pools[0].values[1])


@pytest.fixture
def dots() -> Iterator[Callable[[int], None]]:
    """Whether products of bfloat16 are made in pairs, until the test ends."""
    ops = compiled_kernels()
    yield lambda on: ops.library.ramet_choose_attention(on, 0)
    use(ops.library, machine(ops.library, ops.threads))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("cached", [0, 1, 30, 126, 127, 128, 700])
def test_one_decoding_row(cached: int, dtype: torch.dtype, compiled: bool) -> None:
    check([(cached, 1)], dtype=dtype, compiled=compiled)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (3, 3), (4, 1), (6, 2), (8, 8), (14, 2), (9, 3)])
@pytest.mark.parametrize("head_dim", [16, 48, 64, 80, 128, 256, 512])
def test_any_group_and_head_size(heads: int, kv_heads: int, head_dim: int) -> None:
    check([(140, 1), (3, 1), (33, 5)], heads=heads, kv_heads=kv_heads, head_dim=head_dim)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("extras", [{}, {"window": 40}, {"softcap": 5.0}], ids=str)
def test_sinks_take_their_part_of_the_weights(extras: dict[str, float], dtype: torch.dtype, compiled: bool) -> None:
    """Rows that are whole, cut and merged, few and many queries, prefixes that rows share."""
    rows = [(1, 1), (129, 1), (0, 1), (700, 1), (0, 2), (50, 7), (127, 63), (65, 129)]
    check(rows, heads=6, dtype=dtype, compiled=compiled, sinks=True, **extras)
    check([(700, 1)] * 4, heads=6, dtype=dtype, compiled=compiled, shared=600, sinks=True, **extras)


def test_sinks_beside_keys_of_8_bits() -> None:
    check([(129, 1), (50, 7), (127, 63)], head_dim=64, cache=torch.int8, sinks=True)


@pytest.mark.parametrize("compiled", [True, False])
def test_layers_of_several_shapes_of_which_one_reads_anothers_keys(compiled: bool) -> None:
    """As Gemma 4 has them."""
    inputs, num_slots = step([(129, 1), (3, 1), (50, 7), (65, 129)], 0, seed=3)
    layers, chance = [KVShape.of(2, 32), KVShape.of(1, 64), KVShape.of(0, 64)], torch.Generator().manual_seed(1)
    rules = [LayerAttention(0.2, window=40), LayerAttention(0.1), LayerAttention(0.1, keys_of=1)]
    of = dict(page_size=1, layers=layers, dtype=torch.float32, device=torch.device("cpu"))
    pools = [KVPool(max_total_tokens=num_slots, **of) for _ in range(3)]
    ops = compiled_kernels() if compiled else None
    backends: list[AttentionBackend] = [ReferenceAttention(pools[0], rules)]
    backends += [kind(pool, 4, rules, ops) for kind, pool in zip((CpuAttention, GatheredAttention), pools[1:])]
    for layer, (shape, rule) in enumerate(zip(layers, rules, strict=True)):
        kept = layers[rule.source(layer)]
        q = torch.randn(inputs.num_tokens, 4, kept.key, generator=chance)
        new = torch.randn(2, inputs.num_tokens, kept.heads, kept.key, generator=chance)
        old = torch.randn(2, *pools[0].keys[rule.source(layer)].shape, generator=chance)
        outs = []
        for backend, pool in zip(backends, pools, strict=True):
            if shape.heads:
                for pooled, numbers, added in zip(pool.of(layer), old, new, strict=True):
                    pooled.copy_(numbers)
                    pooled[inputs.slots] = added
            backend.plan(inputs)
            outs.append(backend.forward(q, *(new if shape.heads else (None, None)), layer, inputs))
        for out in outs[1:]:
            torch.testing.assert_close(out, outs[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_mixed_decode_and_extend_with_and_without_prefix(dtype: torch.dtype, compiled: bool) -> None:
    check([(1, 1), (129, 1), (0, 1), (0, 2), (50, 7), (127, 63), (0, 64), (65, 129)], dtype=dtype, compiled=compiled)


@pytest.mark.parametrize("new", [1, 2, 31, 32, 33, 63, 64, 65, 130])
@pytest.mark.parametrize("cached", [0, 5, 200])
def test_extend_is_causal_at_every_length(cached: int, new: int) -> None:
    check([(cached, new)], heads=6, kv_heads=3)


@pytest.mark.parametrize("shared", [10, 64, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_share_a_prefix(shared: int, dtype: torch.dtype) -> None:
    check([(shared + 2 * i, 1) for i in range(40)] + [(shared + 30, 9)], shared=shared, dtype=dtype)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(
    ("window", "softcap"), [(1, None), (8, None), (31, None), (129, 5.0), (None, 5.0), (4096, 0.7)]
)
def test_windows_and_caps(window: int | None, softcap: float | None, dtype: torch.dtype, compiled: bool) -> None:
    rows = [(0, 1), (1, 1), (129, 1), (700, 1), (0, 2), (0, 9), (50, 7), (127, 63), (0, 64), (65, 129), (300, 300)]
    check(rows, dtype=dtype, compiled=compiled, window=window, softcap=softcap)


@pytest.mark.parametrize("new", [1, 2, 31, 32, 33, 63, 64, 65, 257])
@pytest.mark.parametrize("window", [1, 31, 32, 33, 64, 100])
def test_a_window_at_every_length_of_an_extend(window: int, new: int) -> None:
    for cached in (0, window - 1, window, 200):
        check([(cached, new)], heads=6, kv_heads=3, window=window)


@pytest.mark.parametrize("window", [5, 64, 130, 350])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_a_window_over_a_shared_prefix(window: int, softcap: float | None) -> None:
    rows = [(300 + 2 * i, 1) for i in range(40)] + [(330, 9)]
    check(rows, shared=300, window=window, softcap=softcap)


@pytest.mark.parametrize("head_dim", [16, 48, 80, 256])
def test_a_window_and_a_cap_at_any_head_size(head_dim: int) -> None:
    check([(140, 1), (3, 1), (33, 5), (0, 70)], heads=14, kv_heads=2, head_dim=head_dim, window=20, softcap=3.0)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("extras", [{}, {"window": 5}, {"window": 40, "softcap": 9.0}, {"sinks": True}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_that_see_what_comes_behind_them(extras: dict[str, Any], dtype: torch.dtype, compiled: bool) -> None:
    """Pictures at a row's begin and at its end, longer than a window, an item's members and a block of torch's."""
    rows = [(9, 1), (0, 70), (100, 20), (3, 600)]
    ahead = [(1, 17), (60, 71), (71, 91), (100, 400), (640, 691)]
    check(rows, dtype=dtype, compiled=compiled, ahead=ahead, **extras)
    if dtype == torch.float32 and compiled:
        check([(300, 1), (300, 30), (310, 12)], shared=290, ahead=[(3, 20), (31, 43)], **extras)
    if dtype == torch.float32 and compiled and not extras.get("sinks"):
        check(rows, ahead=ahead, cache=torch.int8, **extras)


@pytest.mark.parametrize("cached", [0, 7, 8, 9, 100])
def test_a_key_outside_the_window_changes_nothing(cached: int) -> None:
    """The oracle itself: of a query at position p the window 8 leaves the keys p - 7 to p."""
    inputs, num_slots = step([(cached, 3)], 0, seed=1)
    generator = torch.Generator().manual_seed(1)
    pool = torch.randn(2, num_slots, 2, 16, generator=generator)
    q = torch.randn(3, 4, 16, generator=generator)
    call = AttendCall(q, None, None, *pool, inputs.table, AttentionRule(0.25, window=8))
    whole = reference.extend_attention(call, [1], [3], [cached + 3])
    for i in range(3):
        first = max(0, cached + i + 1 - 8)
        seen = inputs.table[1:, first : cached + i + 1]
        only = AttendCall(q[i : i + 1], None, None, *pool, seen, AttentionRule(0.25))
        alone = reference.extend_attention(only, [0], [1], [seen.shape[1]])
        torch.testing.assert_close(whole[i : i + 1], alone)


def test_a_cap_bounds_the_scores() -> None:
    """With a cap of nearly nothing every key weighs the same."""
    inputs, num_slots = step([(20, 1)], 0, seed=1)
    pool = torch.randn(2, num_slots, 2, 16, generator=torch.Generator().manual_seed(1))
    q = torch.full((1, 4, 16), 100.0)
    call = AttendCall(q, None, None, *pool, inputs.table, AttentionRule(0.25, softcap=1e-6))
    out = reference.extend_attention(call, [1], [1], [21])
    mean = pool[1][inputs.table[1, :21].long()].mean(0).repeat_interleave(2, 0)
    torch.testing.assert_close(out[0], mean)


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "int8", "dots", "int8-dots"])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("group", range(1, 9))
def test_every_length_group_and_storage(storage: str, head_dim: int, group: int, dots: Callable[[int], None]) -> None:
    """Rows alone, of no key but their own, at the borders of a tile, cut in pieces and beside others."""
    rows = [(0, 1), (14, 1), (15, 1), (16, 1), (31, 1), (32, 1), (0, 15), (17, 17), (2, 33)]
    rows += [(4096, 1)] * (group in (1, 8) and head_dim == 64)
    dots(int("dots" in storage))
    check(
        sorted(rows, key=lambda row: row[1]),
        heads=2 * group,
        head_dim=head_dim,
        dtype=torch.float32 if storage == "float32" else torch.bfloat16,
        cache=torch.int8 if "int8" in storage else None,
        page_size=16 if head_dim == 128 else 1,
    )


@pytest.mark.parametrize("storage", ["bfloat16", "int8", "dots", "int8-dots"])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("shared", [0, 96])
@pytest.mark.parametrize("num_rows", [1, 2, 15, 16, 17, 64])
def test_any_number_of_rows(
    num_rows: int, shared: int, page_size: int, storage: str, dots: Callable[[int], None]
) -> None:
    dots(int("dots" in storage))
    cache = torch.int8 if "int8" in storage else None
    rows = [(shared + i % 5, 1) for i in range(num_rows)]
    check(rows, shared=shared, page_size=page_size, dtype=torch.bfloat16, cache=cache, head_dim=64)


@pytest.mark.parametrize(
    ("storage", "dtype"),
    [("dots", torch.bfloat16), ("int8-dots", torch.bfloat16), *(("int8", dtype) for dtype in TOLERANCE)],
)
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (8, None), (31, 5.0), (4096, 0.7)])
def test_windows_and_caps_of_other_storage(
    window: int | None, softcap: float | None, dtype: torch.dtype, storage: str, dots: Callable[[int], None]
) -> None:
    dots(int("dots" in storage))
    rows = [(0, 1), (129, 1), (700, 1), (0, 9), (50, 7), (127, 63), (65, 129)]
    cache = torch.int8 if "int8" in storage else None
    check(rows, heads=14, dtype=dtype, window=window, softcap=softcap, cache=cache)


def test_neighbours_do_not_change_a_row() -> None:
    """The same row alone and in a crowd: equal to rounding, whatever cuts the crowd brings."""
    check([(2000, 1)] + [(3, 1)] * 33)


@pytest.mark.parametrize("cache", [None, torch.int8])
@pytest.mark.parametrize("on", [0, 1])
def test_what_a_token_is_given_depends_little_on_what_is_computed_with_it(
    on: int, cache: torch.dtype | None, dots: Callable[[int], None]
) -> None:
    """Of bfloat16 numbers all but a few in a thousand are equal, whether a step has one new token or many.

    Beside keys of 8 bits one query is rounded to 15 bits: most are equal, and all are within a rounding or two.
    """
    dots(on)
    cached, new, heads = 200, 96, 4
    inputs, num_slots = step([(cached, new)], 0, seed=1)
    pool = KVPool(
        max_total_tokens=num_slots,
        page_size=1,
        layers=[KVShape.of(heads, 64)],
        dtype=cache or torch.bfloat16,
        device=torch.device("cpu"),
    )
    generator = torch.Generator().manual_seed(7)
    for layer in (pool.keys[0], pool.values[0]):
        numbers = torch.randn(*layer.shape[:2], 64, generator=generator)
        layer.copy_(reference.quantised(numbers) if cache else numbers)
    q, k, v = torch.randn(3, new, heads, 64, generator=generator).to(torch.bfloat16)
    backend = CpuAttention(pool, heads, [LayerAttention(64**-0.5)], compiled_kernels())
    backend.plan(inputs)
    together = stored_and_attended(backend, q, k, v, 0, inputs)
    num_equal, furthest = 0, 0.0
    for i in range(new):
        one = slice(i, i + 1)
        alone = replace(
            inputs,
            token_ids=inputs.token_ids[one],
            positions=inputs.positions[one],
            slots=inputs.slots[one],
            num_new=np.array([1], np.int32),
            seq_lens=np.array([cached + i + 1], np.int32),
            num_decode=1,
        )
        backend.plan(alone)
        found = stored_and_attended(backend, q[one], k[one], v[one], 0, alone)
        num_equal += int((found == together[one]).sum())
        furthest = max(furthest, float((found - together[one]).float().abs().max()))
    assert num_equal > (0.995 if cache is None else 0.85) * together.numel(), num_equal / together.numel()
    assert furthest < 2**-8, "some are near 1, where the next number is 2**-8 away"


@pytest.mark.parametrize("new", [1, 40])
@pytest.mark.parametrize("cache", [None, torch.int8])
@pytest.mark.parametrize("factor", [1e2, 1e3, 3e4, 1e6])
def test_scores_of_any_size_leave_numbers(
    factor: float, cache: torch.dtype | None, new: int, dots: Callable[[int], None]
) -> None:
    """Up to 1e14, where a score less the largest one is nothing or a very large number."""
    inputs, num_slots = step([(200, new)], 0, seed=1)
    generator = torch.Generator().manual_seed(7)
    keys, values = torch.randn(2, num_slots + 1, 2, 64, generator=generator)
    q, k, v = torch.randn(3, new, 2, 64, generator=generator)
    found = []
    for on in (0, 1):
        dots(on)
        pool = KVPool(
            max_total_tokens=num_slots,
            page_size=1,
            layers=[KVShape.of(2, 64)],
            dtype=cache or torch.bfloat16,
            device=torch.device("cpu"),
        )
        for layer, numbers in ((pool.keys[0], keys * factor), (pool.values[0], values)):
            layer.copy_(reference.quantised(numbers) if cache else numbers)
        backend = CpuAttention(pool, 2, [LayerAttention(64**-0.5)], compiled_kernels())
        backend.plan(inputs)
        queries, new_keys = (q * factor).to(torch.bfloat16), (k * factor).to(torch.bfloat16)
        found.append(stored_and_attended(backend, queries, new_keys, v.to(torch.bfloat16), 0, inputs))
    assert bool(found[1].isfinite().all())
    torch.testing.assert_close(found[1], found[0], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("heads", [2, 4, 8])
@pytest.mark.parametrize("cache", [torch.bfloat16, torch.int8])
def test_keys_that_weigh_as_good_as_nothing(cache: torch.dtype, heads: int) -> None:
    """Those of the newest tile score less than the others, by anything up to where their weight is 0."""
    cached = 31
    inputs, num_slots = step([(cached, 1)], 0, seed=1)
    pool = KVPool(
        max_total_tokens=num_slots,
        page_size=1,
        layers=[KVShape.of(2, 64)],
        dtype=cache,
        device=torch.device("cpu"),
    )
    slots = inputs.table[1, : cached + 1].long()
    k = torch.zeros(cached + 1, 2, 64, dtype=torch.bfloat16)
    v = torch.ones_like(k)
    k[:16, :, 0] = 1.0
    reference.store_kv(k, v, pool.keys[0], pool.values[0], slots)
    q = torch.zeros(1, heads, 64, dtype=torch.bfloat16)
    for less in np.arange(0, 110, 0.25):
        q[0, :, 0] = float(less)
        backend = CpuAttention(pool, heads, [LayerAttention(1.0)], compiled_kernels())
        backend.plan(inputs)
        found = backend.forward(q, k[-1:], v[-1:], 0, inputs)
        torch.testing.assert_close(found, torch.ones_like(found), msg=f"less by {less}")
