"""Attention to latents on a CUDA device equals its oracle, depends on no other row, and is replayed by a graph."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from latent_cases import LatentCase

from ramet.kernels.decode_attention import MIN_CHUNK, SPLITS, plan_decode
from ramet.kernels.latent_attention import decode_latents, latent_lanes, latent_scratch
from ramet.kernels.tuned import latent_decode_tuning, processor_of

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
NEAR = {torch.float32: 5e-5, torch.float16: 3e-3, torch.bfloat16: 2.5e-2}
SHAPES = [(16, 512, 64), (20, 512, 64), (128, 512, 64), (40, 256, 32), (3, 40, 16), (1, 16, 8)]
CASES = [*product(SHAPES, [torch.bfloat16]), *product(SHAPES[:2], [torch.float16, torch.float32])]
LENGTHS = [0, 126, 128, MIN_CHUNK - 1, MIN_CHUNK, 700, 4096, MIN_CHUNK * SPLITS]  # cached


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = NEAR[expected.dtype]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_rows_that_decode(shape: tuple[int, int, int], dtype: torch.dtype, page: int) -> None:
    placed = LatentCase([(cached, 1) for cached in LENGTHS * 4], *shape, dtype, page, size=2.0).on(CUDA)
    near(placed.decoded(), placed.expected())


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_rows_that_extend(shape: tuple[int, int, int], dtype: torch.dtype, page: int) -> None:
    rows = [(0, 1), (127, 2), (129, 33), (0, 70), (64, 64), (300, 1), (2000, 200), (0, 1000)]
    placed = LatentCase(rows, *shape, dtype, page, size=2.0).on(CUDA)
    near(placed.extended(further_tiles=5), placed.expected())


@pytest.mark.parametrize("heads", [16, 128])
def test_what_a_row_gets_depends_on_no_other_row_and_on_no_grid(heads: int) -> None:
    """A hundred times: a missing barrier between the chunks of a row would show as a number that changes."""
    placed = LatentCase([(3000, 1), (5, 1), (513, 1), (255, 1)] * 10, heads, 512, 64, torch.bfloat16).on(CUDA)
    once = placed.decoded()
    usual = latent_decode_tuning(latent_lanes(heads, 2), 2, processor_of(CUDA))
    for per_processor in (1, 2, 3, 4) * 25:
        assert torch.equal(placed.decoded(replace(usual, per_processor=per_processor)), once)
    for row in range(4):
        assert torch.equal(placed.alone(row).decoded()[0], once[row])


def test_a_graph_replays_rows_of_other_lengths() -> None:
    placed = LatentCase([(cached, 1) for cached in LENGTHS], 16, 512, 64, torch.bfloat16).on(CUDA)
    lengths, out = placed.column([5] * len(LENGTHS)), placed.out
    scratch = latent_scratch(len(LENGTHS), 16, 512, torch.bfloat16, CUDA)

    def run() -> None:
        plan_decode(placed.rows, lengths, scratch)
        decode_latents(placed.q, placed.turned, placed.keys, placed.table, out, scratch, placed.scale)

    with torch.cuda.stream(torch.cuda.Stream()):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    lengths.copy_(placed.column(placed.lengths))
    graph.replay()
    near(out, placed.expected())
