"""The seeded checkpoints of families: what torch drew before they are made changes no byte of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_families import make_family
from tiny_media import FAMILIES


def check(folder: Path, make: Callable[[Path], Path]) -> None:
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        made.append((make(folder / str(seed)) / "model.safetensors").read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_that_takes_media_is_the_same_bytes_each_time(tmp_path: Path, name: str) -> None:
    check(tmp_path, FAMILIES[name])


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3-next"])  # sinks and decays, which their classes draw
def test_a_model_of_texts_is_the_same_bytes_each_time(tmp_path: Path, name: str) -> None:
    check(tmp_path, lambda folder: make_family(folder, name))
