"""typical_p against loops by hand, in a mix of rows, and through a whole model."""

import math

import numpy as np
import pytest
import torch

from ramet.ipc.params import SamplingParams
from ramet.runtime.sampling.filters import FILTERS
from ramet.runtime.sampling.typical_p import typical


def oracle(probabilities: list[float], share: float) -> set[int]:
    """Tokens in order of the distance of their surprise from the entropy, until they have the share."""
    entropy = -sum(p * math.log(p) for p in probabilities if p > 0)
    ranked = sorted((abs(-math.log(p) - entropy), token) for token, p in enumerate(probabilities) if p > 0)
    kept, mass = set[int](), 0.0
    for _, token in ranked:
        if kept and mass >= share:
            break
        kept.add(token)
        mass += probabilities[token]
    return kept


@pytest.mark.parametrize("vocabulary", [1, 2, 127, 129, 1000])
@pytest.mark.parametrize("share", [1e-6, 0.2, 0.5, 0.9, 0.999])
def test_the_tokens_that_stay_are_those_of_the_oracle(vocabulary: int, share: float) -> None:
    random = np.random.default_rng(vocabulary)
    logits = torch.from_numpy(random.normal(0, 2, (7, vocabulary))).float()
    logits[0] = 0.0
    if vocabulary > 2:
        logits[1, ::3] = -torch.inf
    scores = torch.log_softmax(logits, -1)
    stay = typical(scores, torch.full((7,), share))
    for row in range(1, 7):
        # what has no probability may stay or not: it is never drawn
        kept = {t for t in torch.nonzero(stay[row]).flatten().tolist() if scores[row, t] > -torch.inf}
        expected = oracle(scores[row].double().exp().tolist(), share)
        assert len(kept ^ expected) <= (1 if vocabulary > 129 else 0), "float32 may move the last token"
    num = int(stay[0].sum())  # of equals
    assert abs(num - share * vocabulary) <= 1.01 and stay[0, :num].all()


def test_rows_have_shares_of_their_own() -> None:
    scores = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125]]).expand(2, 4))
    # entropy 1.21: surprises 0.69, 1.39, 2.08, 2.08 are 0.52, 0.17, 0.87 and 0.87 from it
    stay = typical(scores, torch.tensor([0.2, 0.6]))
    assert stay.tolist() == [[False, True, False, False], [True, True, False, False]]


def test_it_is_a_filter_of_rows_that_draw() -> None:
    assert FILTERS["typical_p"] is typical
    assert SamplingParams(typical_p=0.5).filters == {"typical_p": 0.5}
    assert SamplingParams(typical_p=1.0).filters == SamplingParams(typical_p=0.5, temperature=0.0).filters == {}
