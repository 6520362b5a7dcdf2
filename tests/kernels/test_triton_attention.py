"""Decode and extend attention for GPUs equal the oracle, in the interpreter, over odd shapes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from attention_cases import Case
from samples import sampled, slow

from ramet.kernels.decode_attention import MIN_CHUNK, SPLITS, WHOLE
from ramet.kernels.extend_attention import ExtendBlocks
from ramet.kernels.tuned import DecodeTuning, ExtendTuning, decode_tuning

CPU, FP8 = torch.device("cpu"), torch.float8_e4m3fn
NEAR = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
GROUPS = [(4, 1), (3, 3), (14, 2), (8, 1)]  # query and kv heads
SIZES = [64, 80, 128, 256, 512]
MODELS = [(32, 8), (16, 16), (8, 1)]  # query and kv heads
PAGES = [1, 16, 64]
OF_8_BITS: list[dict[str, Any]] = [{"sinks": True}, {"cache": FP8}, {"sinks": True, "cache": FP8}]
EXTRAS: list[dict[str, Any]] = [{}, {"window": 100}, {"softcap": 5.0}, {"sinks": True}]
RULES: list[dict[str, Any]] = [{}, {"window": 100}, {"window": 1}, {"softcap": 5.0}, {"window": 300, "softcap": 20.0}]
FEW = DecodeTuning(block=16, warps=4, stages=3, per_processor=1)
SMALL = ExtendTuning(queries=32, block=16, warps=4, stages=2)


def near(found: torch.Tensor, expected: torch.Tensor, times: int = 1) -> None:
    tolerance = NEAR[expected.dtype] * times
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("heads", "head_dim", "rule", "dtype"), sampled(product(GROUPS, SIZES, RULES, NEAR), 6, seed=295), ids=str
)
def test_decoding_rows_of_odd_lengths(
    heads: tuple[int, int], head_dim: int, rule: dict[str, Any], dtype: torch.dtype
) -> None:
    rows = [(0, 1), (126, 1), (128, 1), (MIN_CHUNK, 1), (WHOLE - 1, 1), (WHOLE, 1), (700, 1)]
    placed = Case(rows, *heads, head_dim, dtype, size=3.0, **rule).on(CPU)
    near(placed.decoded(), placed.expected())


@pytest.mark.parametrize("rule", [{}, {"window": 20, "sinks": True}], ids=str)
def test_tiles_of_prompts_that_programs_share(rule: dict[str, Any]) -> None:
    """Three programs each, of which the last has no tokens in a row's last tile."""
    rows = [(0, 1), (5, 30), (40, 23), (0, 71), (17, 8)]
    placed = Case(rows, 4, 2, 48, torch.float32, **rule).on(CPU)
    near(placed.extended(SMALL, parts=3), placed.expected())


@pytest.mark.parametrize("rule", [{}, {"window": 20}, {"window": 5, "softcap": 5.0}, {"sinks": True}], ids=str)
def test_tokens_that_see_what_comes_behind_them(rule: dict[str, Any]) -> None:
    """Pictures at a row's begin and at its end, longer than a window and than a tile."""
    rows = [(0, 30), (5, 60), (40, 23)]
    ahead = ((0, 9), (28, 30), (35, 80), (90, 113))
    placed = Case(rows, 4, 2, 48, torch.float32, ahead=ahead, **rule).on(CPU)
    near(placed.extended(SMALL, parts=2), placed.expected())


def shapes_of_models() -> Iterator[Any]:
    """Every shape, and each with another rule and type. The largest take minutes in the interpreter."""
    for i, (heads, head_dim, page) in enumerate(product(MODELS, SIZES, PAGES)):
        case = heads, head_dim, page, EXTRAS[(i + i // 4) % 4], (torch.float32, torch.float16)[i % 2]
        yield case if heads == (8, 1) and head_dim == 64 else slow(case)


@pytest.mark.parametrize(("heads", "head_dim", "page", "extras", "dtype"), shapes_of_models(), ids=str)
def test_shapes_that_models_have(
    heads: tuple[int, int], head_dim: int, page: int, extras: dict[str, Any], dtype: torch.dtype
) -> None:
    """Rows of 1, 127, 129 and 4,097 tokens and one without any, which decode, and the same as prompts behind others."""
    placed = Case([(0, 1), (126, 1), (128, 1), (4096, 1), (6, 1)], *heads, head_dim, dtype, page, **extras).on(CPU)
    placed.lengths[4] = 0
    found, expected = placed.decoded(), placed.expected()
    near(found[:4], expected[:4])
    assert not found[4].any()
    placed = Case([(0, 1), (0, 127), (129, 2), (4090, 7)], *heads, head_dim, dtype, page, **extras).on(CPU)
    near(placed.extended(), placed.expected())


@pytest.mark.parametrize(
    ("extras", "dtype", "rule"),
    sampled(product(OF_8_BITS, [torch.float32, torch.bfloat16], [{}, {"window": 100}, {"softcap": 5.0}]), 4, seed=5),
    ids=str,
)
def test_sinks_and_keys_of_8_bits(extras: dict[str, Any], dtype: torch.dtype, rule: dict[str, Any]) -> None:
    placed = Case([(0, 1), (126, 1), (700, 1)], 8, 2, 64, dtype, size=3.0, **extras, **rule).on(CPU)
    near(placed.decoded(), placed.expected())
    placed = Case([(0, 1), (127, 2), (129, 33), (0, 70)], 8, 2, 64, dtype, size=3.0, **extras, **rule).on(CPU)
    near(placed.extended(SMALL), placed.expected())


def test_an_empty_row_with_a_sink_gets_zeros() -> None:
    placed = Case([(40, 1), (20, 1)], sinks=True).on(CPU)
    placed.lengths[1] = 0
    assert not placed.decoded()[1].any()


MANY = [(800 + 7 * i, 1) for i in range(9)] + [(0, 1), (300, 1), (600, 1)]


@pytest.mark.parametrize(
    ("heads", "head_dim", "dtype", "rule"),
    [
        ((4, 1), 64, torch.float32, {}),
        slow(((8, 8), 80, torch.float16, {})),
        ((14, 2), 64, torch.bfloat16, {"softcap": 5.0}),
        ((8, 2), 128, torch.float32, {"sinks": True}),
        ((8, 2), 64, torch.bfloat16, {"cache": FP8}),
    ],
    ids=str,
)
def test_rows_that_share_a_prefix(
    heads: tuple[int, int], head_dim: int, dtype: torch.dtype, rule: dict[str, Any]
) -> None:
    """Two chunks of three are shared by nine rows, and one of a tenth with them."""
    placed = Case(MANY, *heads, head_dim, dtype, shared=600, size=3.0, **rule).on(CPU)
    near(placed.decoded(shares=True), placed.expected())
    of = placed.scratch.shared
    assert int(of.num_items) == 2 * -(-10 // max(1, 64 // (heads[0] // heads[1])))
    assert of.shared[:12].sum(1).tolist() == [2] * 9 + [0, 0, 2]


def test_chunks_that_few_share_are_computed_for_each_row() -> None:
    placed = Case(MANY[3:], shared=600).on(CPU)
    alone = placed.decoded()
    assert torch.equal(placed.decoded(shares=True), alone)
    assert not placed.scratch.shared.shared[: len(MANY) - 3].any()


def test_rows_whose_chunks_begin_alike_and_differ_later_share_none_of_them() -> None:
    placed = Case(MANY, shared=600, page=1).on(CPU)
    for row in placed.rows[:9:2].tolist():  # one slot of the first chunk, in five of nine
        placed.table[row, 100] = placed.table[row, 700]
    near(placed.decoded(shares=True), placed.expected())
    assert placed.scratch.shared.shared[:9, 0].sum() == 0 and placed.scratch.shared.shared[:9, 1].sum() == 9


def test_two_groups_of_rows_and_one_of_longer_chunks() -> None:
    """Rows of more than SPLITS chunks have longer ones, which no shorter row shares."""
    long = MIN_CHUNK * SPLITS
    placed = Case([(600 + i, 1) for i in range(17)] + [(long + i, 1) for i in range(8)], 2, 1, 16, shared=512).on(CPU)
    for row in placed.rows[8:17].tolist():  # a prefix of their own, from slots of their own
        placed.table[row, 256:512] = placed.table[placed.rows[20].item(), 1000:1256]
    near(placed.decoded(shares=True), placed.expected())
    assert placed.scratch.shared.shared[:25].sum(1).tolist() == [2] * 17 + [1] * 8


@pytest.mark.parametrize("page", [1, slow(16), 64])
def test_decoding_long_rows_beside_short_ones(page: int) -> None:
    """One row has more than SPLITS of the shortest chunks, so its own are longer."""
    placed = Case([(MIN_CHUNK * SPLITS, 1), (3, 1), (1000, 1)], head_dim=32, page=page).on(CPU)
    near(placed.decoded(), placed.expected())


def test_a_row_without_tokens_gets_zeros_and_harms_nobody() -> None:
    placed = Case([(40, 1), (20, 1), (300, 1)]).on(CPU)
    whole = placed.decoded()
    placed.lengths[1] = 0
    found = placed.decoded()
    assert not found[1].any() and torch.equal(found[[0, 2]], whole[[0, 2]])


def test_a_decoding_row_does_not_depend_on_its_neighbours_or_the_programs() -> None:
    rows = [(1000, 1), (5, 1), (513, 1), (255, 1)]
    placed = Case(rows, dtype=torch.float16).on(CPU)
    together = placed.decoded()
    for per_processor in (2, 5):
        tuning = replace(decode_tuning(64), per_processor=per_processor)
        assert torch.equal(placed.decoded(tuning), together)
    for at in range(len(rows)):
        qkv, lengths, of_table = placed.qkv, placed.lengths, placed.rows
        placed.qkv, placed.lengths, placed.rows = qkv[at : at + 1], lengths[at : at + 1], of_table[at : at + 1]
        assert torch.equal(placed.decoded()[0], together[at])
        placed.qkv, placed.lengths, placed.rows = qkv, lengths, of_table


@pytest.mark.parametrize(
    ("heads", "head_dim", "rule", "dtype"), sampled(product(GROUPS, SIZES, RULES, NEAR), 6, seed=3332), ids=str
)
def test_extending_rows_of_odd_lengths(
    heads: tuple[int, int], head_dim: int, rule: dict[str, Any], dtype: torch.dtype
) -> None:
    rows = [(0, 1), (127, 2), (129, 33), (0, 70), (64, 64), (300, 1)]
    placed = Case(rows, *heads, head_dim, dtype, size=3.0, **rule).on(CPU)
    near(placed.extended(), placed.expected())


@pytest.mark.parametrize(("rule", "page"), sampled(product(RULES, PAGES), 5, seed=3), ids=str)
def test_extending_in_small_tiles(page: int, rule: dict[str, Any]) -> None:
    placed = Case([(200, 40), (3, 1), (0, 90)], 6, 2, 32, page=page, **rule).on(CPU)
    near(placed.extended(SMALL), placed.expected())


def test_a_long_row_beside_short_ones() -> None:
    placed = Case([(4000, 97), (0, 1), (10, 10)], 4, 1, 16).on(CPU)
    near(placed.extended(), placed.expected())


def test_tiles_cover_each_new_token_once_and_the_longest_come_first() -> None:
    num_new, lengths = np.array([5, 1, 64, 33], np.int32), np.array([5, 900, 64, 500], np.int32)
    blocks = ExtendBlocks.of(num_new, lengths, 32)
    covered = {(int(row), int(start)) for row, start in zip(blocks.rows, blocks.starts, strict=True)}
    assert covered == {(0, 0), (1, 0), (2, 0), (2, 32), (3, 0), (3, 32)} and len(blocks.rows) == len(covered)
    read = (lengths - num_new)[blocks.rows] + blocks.starts
    assert (np.diff(read) <= 0).all()


def test_scores_below_what_float32_holds_weigh_nothing() -> None:
    """Those of the first tile are -inf."""
    placed = Case([(200, 1), (150, 1)], dtype=torch.float32).on(CPU)
    placed.qkv[:, : placed.case.heads] = 1e20
    for row, length in zip(placed.rows.tolist(), placed.lengths, strict=True):
        placed.keys[placed.table[row, : length - 30].long()] = -1e20
    found = placed.decoded(FEW)
    assert torch.isfinite(found).all()
    near(found, placed.expected())


def test_weights_on_one_key_and_very_large_scores() -> None:
    """Where all mass lies on a key that is far back, and where scores are beyond what exp can take."""
    for size in (50.0, 1e4):
        placed = Case([(600, 1), (90, 1)], size=size).on(CPU)
        near(placed.decoded(FEW), placed.expected(), times=10)
        placed = Case([(600, 20), (90, 3)], size=size).on(CPU)
        near(placed.extended(SMALL), placed.expected(), times=10)
