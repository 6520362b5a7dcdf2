"""The draw: independent of neighbours, exact against a naive reference, and distributed as it says."""

from typing import Any

import numpy as np
import pytest
import torch

from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.sampling.sampler import sample, uniforms


def columns(num: int, **given: Any) -> SamplingColumns:
    def column(name: str, default: float, dtype: type) -> np.ndarray:
        return np.broadcast_to(np.asarray(given.get(name, default), dtype=dtype), (num,)).copy()

    return SamplingColumns(
        temperature=column("temperature", 1.0, np.float32),
        top_k=column("top_k", 0, np.int64),
        top_p=column("top_p", 1.0, np.float32),
        min_p=column("min_p", 0.0, np.float32),
        seeds=column("seeds", 0, np.uint64),
        positions=column("positions", 0, np.int64),
        banned=given.get("banned", ()),
    )


def kept(logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """The distribution that the parameters leave, ten lines and slow."""
    weights = np.exp((logits - logits.max()) / temperature)
    probs = weights / weights.sum()
    order = np.argsort(-probs, kind="stable")
    keep, mass = np.zeros(len(probs), dtype=bool), 0.0
    for rank, token in enumerate(order):
        keep[token] = (
            (top_k <= 0 or rank < top_k) and (rank == 0 or mass < top_p) and probs[token] >= min_p * probs.max()
        )
        mass += probs[token]
    left = np.where(keep, probs, 0.0)
    return left / left.sum()


def test_greedy_takes_the_best():
    logits = torch.randn(5, 100)
    tokens, broken = sample(logits.clone(), columns(5, temperature=0.0))
    assert tokens.tolist() == logits.argmax(-1).tolist() and broken == ()


def test_philox_matches_its_published_vectors():
    """Known answer of Philox4x32-10 for counter and key zero (Random123)."""
    zero = uniforms(np.array([0], dtype=np.uint64), np.array([0]))
    assert zero[0] == ((0x6627E8D5 << 21) | (0xE169C58D >> 11)) * 2.0**-53


def test_uniforms_are_uniform_and_differ_by_seed_and_position():
    seeds, positions = np.meshgrid(np.arange(100, dtype=np.uint64), np.arange(100))
    values = uniforms(seeds.ravel(), positions.ravel())
    assert len(np.unique(values)) == 10_000 and values.min() >= 0 and values.max() < 1
    counts, _ = np.histogram(values, bins=50, range=(0, 1))
    assert ((counts - 200) ** 2 / 200).sum() < 90  # chi-square, 49 degrees: p < 0.0003


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 5},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"temperature": 1.7, "top_k": 8, "top_p": 0.8, "min_p": 0.05},
        {"top_k": 1},
        {"top_p": 1e-6},
    ],
)
def test_draws_follow_the_distribution_that_is_left(given: dict[str, Any]):
    vocabulary, draws = 40, 20_000
    logits = torch.randn(vocabulary, generator=torch.Generator().manual_seed(1)) * 2
    rows = logits.expand(draws, vocabulary).clone()
    tokens, _ = sample(rows, columns(draws, seeds=np.arange(draws), **given))
    want = kept(
        logits.double().numpy(),
        *(given.get(k, d) for k, d in (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))),
    )
    counts = np.bincount(tokens.numpy(), minlength=vocabulary)
    assert counts[want == 0].sum() == 0, "a token was drawn that must be cut"
    expected = want[want > 0] * draws
    seen = counts[want > 0]
    common = expected >= 5
    chi2 = ((seen[common] - expected[common]) ** 2 / expected[common]).sum()
    assert chi2 < common.sum() + 5 * np.sqrt(2 * common.sum()) + 1


def test_a_row_does_not_depend_on_its_neighbours():
    logits = torch.randn(16, 1000, generator=torch.Generator().manual_seed(2))
    given = dict(
        seeds=np.arange(16),
        positions=np.arange(16) * 3,
        temperature=np.linspace(0, 1.5, 16),
        top_k=np.arange(16) % 4 * 10,
        top_p=np.where(np.arange(16) % 3 == 0, 0.8, 1.0),
        min_p=np.where(np.arange(16) % 5 == 0, 0.1, 0.0),
    )
    together, _ = sample(logits.clone(), columns(16, **given))
    for row in range(16):
        alone, _ = sample(logits[row : row + 1].clone(), columns(1, **{k: v[row] for k, v in given.items()}))
        assert alone.tolist() == [int(together[row])]


def test_top_p_looks_beyond_the_first_candidates_when_it_must():
    """A flat distribution: 0.9 of the mass is far more than the first 256 tokens."""
    tokens, _ = sample(torch.zeros(500, 5000), columns(500, top_p=0.9, seeds=np.arange(500)))
    assert len(set((tokens // 500).tolist())) >= 9


def test_top_k_cuts_to_exactly_k_among_equals():
    tokens, _ = sample(torch.zeros(2000, 50), columns(2000, top_k=7, seeds=np.arange(2000)))
    assert len(set(tokens.tolist())) == 7


def test_banned_tokens_are_never_drawn():
    logits = torch.zeros(300, 4)
    ids = np.array([0, 2], dtype=np.int32)
    tokens, _ = sample(logits, columns(300, seeds=np.arange(300), banned=tuple((i, ids) for i in range(300))))
    assert set(tokens.tolist()) == {1, 3}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_named_and_harm_nobody(bad: float):
    logits = torch.randn(4, 50)
    clean, _ = sample(logits.clone(), columns(4, seeds=np.arange(4)))
    logits[2, 7] = bad
    tokens, broken = sample(logits, columns(4, seeds=np.arange(4)))
    assert broken == (2,) and [t for i, t in enumerate(tokens.tolist()) if i != 2] == [
        t for i, t in enumerate(clean.tolist()) if i != 2
    ]


def test_a_row_with_one_possible_token_draws_it():
    logits = torch.full((1, 30), -torch.inf)
    logits[0, 11] = 3.0
    assert sample(logits, columns(1))[0].tolist() == [11]
