"""The draw: exact against a naive reference, distributed as it says, independent of neighbours, compiled or plain."""

from dataclasses import fields
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from compiled import KERNELS, compiled_kernels

from ramet.kernels import reference
from ramet.kernels.draw_params import COLUMNS, DrawParams
from ramet.kernels.philox import philox_uniforms

pytestmark = pytest.mark.usefixtures("two_threads")

NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
FLOATS = ("temperature", "top_p", "min_p")


def columns(num: int, **given: Any) -> tuple[DrawParams[torch.Tensor], torch.Tensor]:
    values = NEUTRAL | {"seeds": 0, "positions": 0} | given
    every = {
        name: torch.as_tensor(value).to(torch.float32 if name in FLOATS else torch.int64).expand(num).contiguous()
        for name, value in values.items()
    }
    positions = every.pop("positions")
    return DrawParams(**every), positions


def test_the_table_of_columns_names_those_of_the_rows():
    assert list(COLUMNS) == [field.name for field in fields(DrawParams)]


def draw(kernel: Any, logits: torch.Tensor, **given: Any) -> list[int]:
    tokens, finite = kernel.draw(logits, *columns(len(logits), **given))
    assert bool(finite.all())
    return tokens.tolist()


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def kept(logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """The distribution that the parameters leave, ten lines and slow."""
    weights = np.exp((logits - logits.max()) / temperature)
    probs = weights / weights.sum()
    order = np.argsort(-probs, kind="stable")
    keep, mass = np.zeros(len(probs), dtype=bool), 0.0
    for rank, token in enumerate(order):
        likely = probs[token] >= min_p * probs.max()
        keep[token] = (top_k <= 0 or rank < top_k) and (rank == 0 or mass < top_p) and likely
        mass += probs[token]
    left = np.where(keep, probs, 0.0)
    return left / left.sum()


def test_philox_matches_its_published_vectors():
    """Known answer of Philox4x32-10 for counter and key zero (Random123)."""
    zero = philox_uniforms(np.array([0], dtype=np.uint64), np.array([0]))
    assert zero[0] == ((0x6627E8D5 << 21) | (0xE169C58D >> 11)) * 2.0**-53


def test_uniforms_are_uniform_and_differ_by_seed_and_position():
    seeds, positions = np.meshgrid(np.arange(100, dtype=np.uint64), np.arange(100))
    values = philox_uniforms(seeds.ravel(), positions.ravel())
    assert len(np.unique(values)) == 10_000 and values.min() >= 0 and values.max() < 1
    counts, _ = np.histogram(values, bins=50, range=(0, 1))
    assert ((counts - 200) ** 2 / 200).sum() < 90  # chi-square, 49 degrees: p < 0.0003


@pytest.mark.parametrize("kernel", KERNELS)
def test_greedy_takes_the_first_of_the_best(kernel: Any):
    logits = normal(5, 100)
    logits[3, [20, 70]] = 9.0
    assert draw(kernel, logits, temperature=0.0) == [*logits.argmax(-1)[:3].tolist(), 20, int(logits[4].argmax())]


PARAMETERS = {"temperature": 1.7, "top_k": 12, "top_p": 0.8, "min_p": 0.04}
TOGETHER = [dict(some) for num in range(5) for some in combinations(PARAMETERS.items(), num)]
CUTS = [{"temperature": 0.5}, {"top_k": 1}, {"top_p": 1e-6}, {"top_p": 0.999, "temperature": 3.0}, {"min_p": 1.0}]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("given", [*TOGETHER, *CUTS], ids=str)
def test_draws_follow_the_distribution_that_is_left(kernel: Any, given: dict[str, Any]):
    vocabulary, draws = 40, 20_000
    logits = normal(vocabulary, seed=1) * 2
    tokens = draw(kernel, logits.expand(draws, vocabulary).contiguous(), seeds=torch.arange(draws), **given)
    want = kept(logits.double().numpy(), **NEUTRAL | given)
    counts = np.bincount(tokens, minlength=vocabulary)
    assert counts[want == 0].sum() == 0, "a token was drawn that must be cut"
    expected = want[want > 0] * draws
    seen = counts[want > 0]
    common = expected >= 5
    chi2 = ((seen[common] - expected[common]) ** 2 / expected[common]).sum()
    assert chi2 < common.sum() + 5 * np.sqrt(2 * common.sum()) + 1


@pytest.mark.parametrize("vocabulary", [1, 2, 15, 16, 17, 127, 257, 32_000])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_compiled_draws_what_the_reference_draws(vocabulary: int, rows: int):
    """Every combination of cuts, with ties; a weight that is rounded otherwise may move a draw in ten thousand."""
    random = np.random.default_rng(vocabulary * 1000 + rows)
    logits = (normal(rows, vocabulary, seed=vocabulary) * 3).round(decimals=1)
    logits[:, random.integers(0, vocabulary, vocabulary // 9)] = -torch.inf
    logits[:, 0] = 1.0
    given = {
        "temperature": random.choice([0.0, 0.3, 1.0, 2.5], rows),
        "top_k": random.choice([0, 1, 3, 50, 10**9], rows),
        "top_p": random.choice([1.0, 0.95, 0.5, 0.01], rows),
        "min_p": random.choice([0.0, 0.02, 0.5], rows),
        "seeds": random.integers(-(2**63), 2**63 - 1, rows),
        "positions": random.integers(0, 2**40, rows),
    }
    given = {name: torch.from_numpy(value) for name, value in given.items()}
    ours, plain = (np.array(draw(kernel, logits, **given)) for kernel in (compiled_kernels(), reference))
    assert (ours != plain).sum() <= (1 if vocabulary > 1000 else 0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_does_not_depend_on_its_neighbours(kernel: Any):
    logits = normal(16, 1000, seed=2)
    rows = torch.arange(16)
    given = {
        "seeds": rows,
        "positions": rows * 3,
        "temperature": torch.linspace(0, 1.5, 16),
        "top_k": rows % 4 * 10,
        "top_p": torch.where(rows % 3 == 0, 0.8, 1.0),
        "min_p": torch.where(rows % 5 == 0, 0.1, 0.0),
    }
    together = draw(kernel, logits, **given)
    for row in range(16):
        alone = draw(kernel, logits[row : row + 1], **{name: value[row] for name, value in given.items()})
        assert alone == [together[row]]


@pytest.mark.parametrize("kernel", KERNELS)
def test_top_p_of_equals_keeps_its_share(kernel: Any):
    tokens = draw(kernel, torch.zeros(2000, 5000), top_p=0.9, seeds=torch.arange(2000))
    assert 4400 < max(tokens) < 4500, "0.9 of 5000 equals are the first 4500"


@pytest.mark.parametrize("kernel", KERNELS)
def test_top_k_cuts_to_exactly_k_among_equals(kernel: Any):
    tokens = draw(kernel, torch.zeros(2000, 50), top_k=7, seeds=torch.arange(2000))
    assert set(tokens) == set(range(7))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("place", [0, 7, 49])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_named_and_harm_nobody(kernel: Any, bad: float, place: int):
    logits, seeds = normal(4, 50), torch.arange(4)
    clean = draw(kernel, logits, seeds=seeds)
    logits[2, place] = bad
    tokens, finite = kernel.draw(logits, *columns(4, seeds=seeds))
    assert finite.tolist() == [True, True, False, True]
    assert [t for i, t in enumerate(tokens.tolist()) if i != 2] == [t for i, t in enumerate(clean) if i != 2]
    assert 0 <= int(tokens[2]) < 50


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_without_a_possible_token_is_named(kernel: Any):
    logits = normal(2, 50)
    logits[0] = -torch.inf
    assert kernel.draw(logits, *columns(2, top_k=3))[1].tolist() == [False, True]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_with_one_possible_token_draws_it(kernel: Any):
    logits = torch.full((1, 30), -torch.inf)
    logits[0, 11] = 3.0
    assert draw(kernel, logits) == draw(kernel, logits, top_p=0.5, top_k=20) == [11]


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_drew_read_their_tokens_next_and_are_longer(kernel: Any):
    next_ids, lengths = torch.zeros(5, dtype=torch.int32), torch.arange(5, dtype=torch.int32)
    kernel.advance(torch.tensor([4, 1]), torch.tensor([70000, 3]), next_ids, lengths)
    assert next_ids.tolist() == [0, 3, 0, 0, 70000] and lengths.tolist() == [0, 2, 2, 3, 5]
