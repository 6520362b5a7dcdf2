"""On a CUDA device no row, slot or adapter of others changes a row by a bit, not even NaN, which times 0 is NaN."""

from typing import Any

import pytest
import torch
from attention_cases import Case
from latent_cases import LatentCase
from poisoned_rows import POISONED, poison

from ramet.kernels.stacked_adapters import LowRank, StackedChanges, WholeWeight

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
OF_A_MODEL: dict[str, Any] = {"heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": torch.bfloat16}
DECODING = [(9, 1), (700, 1), (1100, 1), (33, 1), (0, 1), (5000, 1)]
MIXED = [(9, 1), (130, 1), (40, 70), (64, 33), (0, 17), (1000, 129)]
SHARING = [(40, 1), (50, 1), (300, 1), *[(2000, 1)] * 9]
CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("decoded", POISONED, {"rows": DECODING}), ("decoded", POISONED, {"rows": DECODING, "window": 300, "page": 16}),
    ("decoded", 5, {"rows": DECODING, "cache": torch.float8_e4m3fn}),
    ("shared", POISONED, {"rows": SHARING, "shared": 1800}), ("shared", 5, {"rows": SHARING, "shared": 1800}),
    ("extended", POISONED, {"rows": MIXED}), ("extended", 0, {"rows": MIXED, "window": 20, "page": 16}),
    ("extended", POISONED, {"rows": MIXED, "cache": torch.float8_e4m3fn}),
    ("extended", POISONED, {"rows": MIXED, "heads": 16, "head_dim": 256}),
]  # fmt: skip


@pytest.mark.parametrize(("way", "row", "case"), CASES, ids=str)
def test_rows_and_slots_of_others_change_no_row(way: str, row: int, case: dict[str, Any]) -> None:
    outs = []
    for number in (0.5, torch.nan):
        placed = Case(**OF_A_MODEL | case).on(CUDA)
        is_own = poison(placed, number, row)
        outs.append(placed.extended() if way == "extended" else placed.decoded(shares=way == "shared"))
    same_but_for_the_poisoned(*outs, is_own)


@pytest.mark.parametrize("rows", [DECODING, MIXED], ids=str)
def test_latents_of_others_change_no_row(rows: list[tuple[int, int]]) -> None:
    outs = []
    for number in (0.5, torch.nan):
        placed = LatentCase(rows, 16, 512, 64, torch.bfloat16).on(CUDA)
        is_own = poison(placed, number)
        outs.append(placed.decoded() if rows is DECODING else placed.extended())
    same_but_for_the_poisoned(*outs, is_own)


@pytest.mark.parametrize("number", [torch.inf, torch.nan, 6e4])  # whose products float16 does not hold
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_an_adapter_changes_no_row_of_another(dtype: torch.dtype, number: float) -> None:
    chance = torch.Generator().manual_seed(0)
    num_in, num_out = 512, 768

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance).to(dtype).to(CUDA)

    x, wide = random(33, num_in), random(33, num_out)
    own_up, theirs = random(16, num_out), (LowRank(64, random(8, num_in) / 20, random(8, 512)),)
    kept = (WholeWeight(256, random(512, num_in), None),)
    slots = (torch.arange(33, dtype=torch.int32) % 4).to(CUDA)
    outs = []
    for each in (0.5, number):
        of_layer = StackedChanges(num_out, by_rows=False)
        of_layer.place(1, (LowRank(0, torch.full((16, num_in), each, dtype=dtype, device=CUDA), own_up),))
        of_layer.place(2, theirs)
        of_layer.place(3, kept)
        outs.append(of_layer.add(x, wide.clone(), slots))
    clean, dirty = outs
    assert clean[slots != 1].isfinite().all() and torch.equal(clean[slots != 1], dirty[slots != 1])
    assert not dirty[slots == 1].isfinite().all() or (dtype, number) == (torch.bfloat16, 6e4)


def same_but_for_the_poisoned(clean: torch.Tensor, dirty: torch.Tensor, is_own: torch.Tensor) -> None:
    assert not clean.isnan().any() and dirty[~is_own].isnan().any()
    assert torch.equal(clean[is_own], dirty[is_own])
