"""The contents of other rows and their slots do not change a row by a bit, not even NaN, which times 0 is NaN."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_cases import Case
from compiled import compiled_kernels
from latent_cases import LatentCase
from poisoned_rows import POISONED, poison
from samples import sampled, slow

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_backends_agree import Rows, step, stored_and_attended
from test_latent_backends import SMALL, layer_of

from ramet.kernels import reference
from ramet.kernels.cpu.declarations import native
from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.attention.cpu import CpuAttention
from ramet.runtime.attention.gathered import GatheredAttention
from ramet.runtime.attention.latent import LatentReference
from ramet.runtime.attention.latent_cpu import LatentCpuAttention
from ramet.runtime.attention.reference import ReferenceAttention
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.engine.devices.cpu_kernels import machine, use
from ramet.runtime.layers.modules import pack_linears
from ramet.runtime.weights.packing import packer_of

pytestmark = pytest.mark.usefixtures("two_threads")

CPU = torch.device("cpu")
HEADS, KV_HEADS, HEAD_DIM = 6, 2, 32
DECODING: Rows = [(9, 1), (130, 1), (300, 1), (64, 1), (0, 1), (41, 1)]
MIXED: Rows = [(9, 1), (130, 1), (40, 70), (64, 33), (0, 17), (3, 129)]
CASES: list[dict[str, Any]] = [
    {"rows": DECODING}, {"rows": MIXED}, {"rows": MIXED, "dtype": torch.bfloat16},
    {"rows": DECODING, "dtype": torch.float16, "page_size": 16}, {"rows": MIXED, "dtype": torch.float16, "window": 20},
    {"rows": DECODING, "window": 20, "softcap": 5.0}, {"rows": MIXED, "cache": torch.int8, "page_size": 16},
    {"rows": DECODING, "cache": torch.int8, "dtype": torch.bfloat16}, {"rows": [(80, 1)] * 12, "shared": 64},
]  # fmt: skip


def kinds_of(case: dict[str, Any]) -> list[str]:
    return ["reference", "compiled"] if "cache" in case else ["reference", "gathered", "plain", "compiled"]


GRID = [(case, kind) for case in CASES for kind in kinds_of(case)]


@pytest.mark.parametrize(("case", "kind"), sampled(GRID, 10, seed=4), ids=str)
def test_rows_and_slots_of_others_change_no_row(case: dict[str, Any], kind: str) -> None:
    others_change_no_row(case, kind)


OF_PAIRS = [{**each, "dtype": torch.bfloat16} for each in CASES]


@pytest.mark.parametrize("case", sampled(OF_PAIRS, 4, seed=1), ids=str)
@pytest.mark.parametrize(("dots", "tiles"), [(0, 0), (1, 0), (1, 1)])
def test_no_arithmetic_lets_others_change_a_row(dots: int, tiles: int, case: dict[str, Any]) -> None:
    """Products in pairs and by tile registers, of the CPUs that have them."""
    ops = compiled_kernels()
    try:
        native(ops.library, "choose_attention")(dots, tiles)
        others_change_no_row(case, "compiled")
    finally:
        use(ops.library, machine(ops.library, ops.threads))


def others_change_no_row(case: dict[str, Any], kind: str) -> None:
    (clean, is_own), (dirty, _) = (attended(kind, number, **case) for number in (0.5, math.nan))
    assert not clean.isnan().any() and dirty[~is_own].isnan().all()
    assert torch.equal(clean[is_own], dirty[is_own])


def attended(
    kind: str, number: float, *, rows: Rows, dtype: torch.dtype = torch.float32, window: int | None = None,
    softcap: float | None = None, cache: torch.dtype | None = None, page_size: int = 1, shared: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Attention's output if one row and all unused slots hold `number`, and which tokens belong to the other rows."""
    inputs, num_slots = step(rows, shared, seed=3, page_size=page_size)
    chance = torch.Generator().manual_seed(7)
    layers = [KVShape.of(KV_HEADS, HEAD_DIM)]
    pool = KVPool(max_total_tokens=num_slots, page_size=1, layers=layers, dtype=cache or dtype, device=CPU)
    ends = torch.from_numpy(inputs.num_new).long().cumsum(0).tolist()
    is_own = torch.ones(inputs.num_tokens, dtype=torch.bool)
    is_own[ends[POISONED - 1] : ends[POISONED]] = False
    kept = torch.cat([inputs.table[r + 1, : c + n] for r, (c, n) in enumerate(rows) if r != POISONED]).long()
    for tensor in (pool.keys[0], pool.values[0]):
        numbers = torch.randn(len(tensor), KV_HEADS, HEAD_DIM, generator=chance)
        foreign = torch.ones(len(tensor), dtype=torch.bool)
        foreign[kept] = False
        numbers[foreign] = number
        tensor.copy_(reference.quantised(numbers) if cache else numbers)
    qkv = torch.randn(inputs.num_tokens, HEADS + 2 * KV_HEADS, HEAD_DIM, generator=chance)
    qkv[~is_own] = number
    q, k, v = qkv.to(dtype).split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    rules, ops = [LayerAttention(HEAD_DIM**-0.5, window, softcap)], compiled_kernels()
    backend: Any = {
        "reference": lambda: ReferenceAttention(pool, rules),
        "gathered": lambda: GatheredAttention(pool, HEADS, rules, ops),
        "plain": lambda: CpuAttention(pool, HEADS, rules, None),
        "compiled": lambda: CpuAttention(pool, HEADS, rules, ops),
    }[kind]()
    backend.plan(inputs)
    return stored_and_attended(backend, q, k, v, 0, inputs), is_own


@pytest.mark.parametrize("kind", ["reference", "compiled"])
@pytest.mark.parametrize("rows", [DECODING, MIXED], ids=str)
def test_latents_of_others_change_no_row(rows: Rows, kind: str) -> None:
    inputs, num_slots = step(rows, 0, seed=3)
    ends = torch.from_numpy(inputs.num_new).long().cumsum(0).tolist()
    is_own = torch.ones(inputs.num_tokens, dtype=torch.bool)
    is_own[ends[POISONED - 1] : ends[POISONED]] = False
    kept = torch.cat([inputs.table[r + 1, : c + n] for r, (c, n) in enumerate(rows) if r != POISONED]).long()
    foreign = torch.ones(num_slots + 1, dtype=torch.bool)
    foreign[kept] = False
    angles = torch.outer(torch.arange(2048.0), 1e4 ** -torch.linspace(0, 1, SMALL.rotated // 2))
    rope, rules = (angles.cos(), angles.sin()), [LayerAttention(SMALL.query**-0.5, value_size=SMALL.latent)]
    outs, ops = [], compiled_kernels()
    for number in (0.5, math.nan):
        cached = torch.randn(num_slots + 1, 1, SMALL.key, generator=torch.Generator().manual_seed(6))
        cached[foreign] = number
        x = torch.randn(inputs.num_tokens, 32, generator=torch.Generator().manual_seed(5))
        x[~is_own] = number
        layers = [KVShape(1, SMALL.key, 0)]
        pool = KVPool(max_total_tokens=num_slots, page_size=1, layers=layers, dtype=torch.float32, device=CPU)
        pool.keys[0].copy_(cached)
        backend: Any = LatentReference(pool, rules, SMALL)
        layer = layer_of(SMALL, 4, torch.float32, reference if kind == "reference" else ops)
        if kind == "compiled":
            pack_linears(layer, packer_of("plain", 128, ops), packer_of("plain", 128, ops))
            backend = LatentCpuAttention(pool, 4, rules, SMALL, ops)
        backend.plan(inputs)
        outs.append(layer(x, rope, backend, inputs))
    clean, dirty = outs
    assert not clean.isnan().any() and dirty[~is_own].isnan().all()
    assert torch.equal(clean[is_own], dirty[is_own])


TRITON: list[tuple[str, dict[str, Any]]] = [
    ("decoded", {"rows": DECODING}), ("decoded", {"rows": DECODING, "window": 20}),
    ("decoded", {"rows": [(9, 1), (700, 1), (1100, 1), (33, 1)], "page": 16, "dtype": torch.float16}),
    ("shared", {"rows": [(40, 1), (50, 1), (300, 1), *[(200, 1)] * 9], "shared": 128}),
    ("extended", {"rows": MIXED}), ("extended", {"rows": MIXED, "window": 20, "page": 16}),
    ("extended", {"rows": MIXED, "cache": torch.float8_e4m3fn, "dtype": torch.bfloat16}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("way", "case"), [TRITON[0], *map(slow, TRITON[1:3]), *TRITON[3:5], *map(slow, TRITON[5:])], ids=str
)
def test_kernels_of_a_card_let_no_row_change_another(way: str, case: dict[str, Any]) -> None:
    outs = []
    for number in (0.5, math.nan):
        placed = Case(**case).on(CPU)
        is_own = poison(placed, number)
        out = placed.extended() if way == "extended" else placed.decoded(shares=way == "shared")
        outs.append(out)
    clean, dirty = outs
    assert not clean.isnan().any() and dirty[~is_own].isnan().all()
    assert torch.equal(clean[is_own], dirty[is_own])


@pytest.mark.parametrize("rows", [DECODING, MIXED], ids=str)
def test_kernels_of_a_card_let_no_latents_change_another_row(rows: Rows) -> None:
    outs = []
    for number in (0.5, math.nan):
        placed = LatentCase(rows).on(CPU)
        is_own = poison(placed, number)
        outs.append(placed.decoded() if rows is DECODING else placed.extended())
    clean, dirty = outs
    assert not clean.isnan().any() and dirty[~is_own].isnan().all()
    assert torch.equal(clean[is_own], dirty[is_own])
