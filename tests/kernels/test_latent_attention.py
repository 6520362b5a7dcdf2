"""Attention to latents for GPUs equals the oracle, in the interpreter, over odd shapes."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from latent_cases import LatentCase
from samples import sampled, slow

from ramet.kernels.decode_attention import MIN_CHUNK, SPLITS, WHOLE
from ramet.kernels.latent_attention import heads_of_tile, latent_lanes, latent_scratch
from ramet.kernels.tuned import DecodeTuning, ExtendTuning, latent_decode_tuning

CPU = torch.device("cpu")
NEAR = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
HEADS, LATENTS, ROTATED, PAGES = [1, 3, 16, 20, 128], [16, 40, 64, 512], [8, 64], [1, 16]
SHAPES = list(product(HEADS, LATENTS, ROTATED, PAGES, NEAR))  # samples have each head, latent, ... at least once
FEW = DecodeTuning(block=16, warps=4, stages=3, per_processor=1)
SMALL = ExtendTuning(queries=16, block=16, warps=4, stages=2)


def near(found: torch.Tensor, expected: torch.Tensor, times: int = 1) -> None:
    tolerance = NEAR[expected.dtype] * times
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("heads", "latent", "rotated", "page", "dtype"), sampled(SHAPES, 6, seed=3640), ids=str)
def test_shapes_of_heads_and_latents(heads: int, latent: int, rotated: int, page: int, dtype: torch.dtype) -> None:
    """Rows of 1, 127, 129 and 700 tokens and one without any, which decode, and prompts behind others."""
    of = heads, latent, rotated, dtype, page
    placed = LatentCase([(0, 1), (126, 1), (128, 1), (699, 1), (6, 1)], *of, size=3.0).on(CPU)
    expected = placed.expected()
    placed.lengths[4] = 0
    found = placed.decoded()
    near(found[:4], expected[:4])
    assert not found[4].any()
    placed = LatentCase([(0, 1), (127, 2), (129, 3), (0, 17)], *of, size=3.0).on(CPU)
    near(placed.extended(), placed.expected())


@pytest.mark.parametrize("dtype", [torch.float32, slow(torch.bfloat16)], ids=str)
def test_the_sizes_of_published_models(dtype: torch.dtype) -> None:
    placed = LatentCase([(0, 1), (126, 1), (600, 1)], 16, 512, 64, dtype).on(CPU)
    near(placed.decoded(), placed.expected())
    placed = LatentCase([(0, 1), (127, 2), (0, 129)], 16, 512, 64, dtype).on(CPU)
    near(placed.extended(), placed.expected())


@pytest.mark.parametrize(
    "length", [WHOLE - 1, WHOLE, WHOLE + 1, 3 * MIN_CHUNK, MIN_CHUNK * SPLITS, MIN_CHUNK * SPLITS + 1]
)
def test_chunks_of_rows_are_merged(length: int) -> None:
    """The last has more tokens than SPLITS of the shortest chunks, so its own are longer."""
    placed = LatentCase([(length - 1, 1), (2, 1)], heads=20, latent=16, rotated=8).on(CPU)
    near(placed.decoded(), placed.expected())


@pytest.mark.parametrize(("cached", "new"), sampled(product([0, 1, 127, 129], [1, 2, 127, 129]), 7, seed=17))
def test_new_tokens_see_those_before_them(cached: int, new: int) -> None:
    placed = LatentCase([(cached, new)], heads=3, latent=16, rotated=8).on(CPU)
    near(placed.extended(), placed.expected())
    near(placed.extended(SMALL), placed.expected())


def test_a_decoding_row_does_not_depend_on_its_neighbours_or_the_programs() -> None:
    placed = LatentCase([(1000, 1), (5, 1), (513, 1), (255, 1)], heads=20, dtype=torch.float16).on(CPU)
    together, usual = placed.decoded(), latent_decode_tuning(32, 2)
    for per_processor in (1, 5):
        assert torch.equal(placed.decoded(replace(usual, per_processor=per_processor)), together)
    for row in range(4):
        assert torch.equal(placed.alone(row).decoded()[0], together[row])


def test_an_extending_row_does_not_depend_on_its_neighbours() -> None:
    placed = LatentCase([(200, 30), (0, 1), (31, 33), (0, 64)], heads=3, dtype=torch.float16).on(CPU)
    together = placed.extended()
    starts = [0, 30, 31, 64, 128]
    for row in range(4):
        assert torch.equal(placed.alone(row).extended(), together[starts[row] : starts[row + 1]])


def test_a_row_without_tokens_gets_zeros_and_harms_nobody() -> None:
    placed = LatentCase([(40, 1), (20, 1), (600, 1)]).on(CPU)
    whole = placed.decoded()
    placed.lengths[1] = 0
    found = placed.decoded()
    assert not found[1].any() and torch.equal(found[[0, 2]], whole[[0, 2]])


def test_tiles_behind_the_tokens_of_a_row_write_nothing() -> None:
    placed = LatentCase([(5, 20), (0, 7)]).on(CPU)
    assert torch.equal(placed.extended(further_tiles=3), placed.extended())


def test_scores_below_what_float32_holds_weigh_nothing() -> None:
    """Those of the first tile are -inf."""
    placed = LatentCase([(200, 1), (150, 1)]).on(CPU)
    placed.q[:], placed.turned[:] = 1e20, 1e20
    for row, length in zip(placed.rows.tolist(), placed.lengths, strict=True):
        placed.keys[placed.table[row, : length - 30].long()] = -1e20
    found = placed.decoded(FEW)
    assert torch.isfinite(found).all()
    near(found, placed.expected())


def test_weights_on_one_key_and_very_large_scores() -> None:
    for size in (50.0, 1e4):
        placed = LatentCase([(600, 1), (90, 1)], size=size).on(CPU)
        near(placed.decoded(FEW), placed.expected(), times=10)
        placed = LatentCase([(600, 20), (90, 3)], size=size).on(CPU)
        near(placed.extended(SMALL), placed.expected(), times=10)


@pytest.mark.parametrize(("heads", "tiles"), [(1, 1), (16, 1), (17, 1), (20, 1), (33, 2), (40, 2), (128, 4)])
def test_heads_lie_in_as_few_tiles_as_hold_them(heads: int, tiles: int) -> None:
    """And parts of long rows have a place for each."""
    tile = heads_of_tile(heads, latent_lanes(heads, 2))
    assert -(-heads // tile) == tiles and tile * tiles - heads < tiles
    scratch = latent_scratch(2, heads, 64, torch.bfloat16, CPU)
    assert scratch.partials.shape == (2, tiles, SPLITS, tile, 64) and scratch.arrived.shape == (2, tiles)
