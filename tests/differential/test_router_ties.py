"""What excuses a place from comparisons is a router in doubt, and nothing else."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import Oracle
from router_ties import RouterTies
from tiny_families import VOCABULARY, make_family

from ramet.runtime.models.registry import read_shape

IDS = np.random.default_rng(0).integers(0, VOCABULARY, 40).tolist()


def loaded(folder: Path, family: str) -> tuple[Any, RouterTies]:
    made = make_family(folder, family)
    model = Oracle.load(made).model
    return model, RouterTies(model, read_shape(made))


@pytest.mark.parametrize("family", ["qwen3-moe", "mixtral", "glm4-moe"])
def test_experts_with_one_score_leave_every_token_that_is_between_them_in_doubt(tmp_path: Path, family: str) -> None:
    model, ties = loaded(tmp_path, family)
    assert ties.first_doubt(IDS) == len(IDS)
    with torch.no_grad():
        for router in (layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "experts")):
            router.weight.copy_(router.weight[:1].expand_as(router.weight))
            if hasattr(router, "e_score_correction_bias"):
                router.e_score_correction_bias.zero_()
    assert ties.first_doubt(IDS) == 0
    ties.check(IDS, [0.0] * 40, [0.5] * 3 + [0.0] * 37, 1e-4)
    assert str(ties) == "3 of 40 places are excused, for router scores closer than 1e-06"


def test_a_difference_without_a_doubt_is_one(tmp_path: Path) -> None:
    _, ties = loaded(tmp_path, "qwen3-moe")
    ties.check(IDS, [0.0] * 40, [0.0] * 40, 1e-4)
    for wrong in (0.5, float("nan")):
        with pytest.raises(AssertionError):
            ties.check(IDS, [0.0] * 40, [0.0] * 39 + [wrong], 1e-4)
    assert ties.num == 0
