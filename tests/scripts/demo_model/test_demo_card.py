"""The bundled model's folder: its size, its shape, and a card and a log that say the same."""

import json
import re

from ramet.runtime.config import BUNDLED_MODEL
from scripts.demo_model.cases import TARGETS
from scripts.demo_model.network import Shape
from scripts.demo_model.train import Plan

LOG = (BUNDLED_MODEL / "training.log").read_text()
CARD = (BUNDLED_MODEL / "README.md").read_text()


def test_the_folder_is_small_and_whole():
    sizes = {path.name: path.stat().st_size for path in BUNDLED_MODEL.iterdir()}
    assert sum(sizes.values()) <= 24 * 10**6
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    } <= (sizes.keys())


def test_the_folder_has_the_script_s_shape():
    config = json.loads((BUNDLED_MODEL / "config.json").read_text())
    asked = Shape().config(eos_token_id=config["eos_token_id"], pad_token_id=config["pad_token_id"])
    assert config == asked and config["max_position_embeddings"] >= 4096
    assert "chat_template" in json.loads((BUNDLED_MODEL / "tokenizer_config.json").read_text())


def test_the_log_is_of_the_whole_plan():
    """Steps come twice where a run was cut off and went on from the state saved before."""
    steps = {int(step) for step in re.findall(r"^step (\d+) ", LOG, re.MULTILINE)}
    every = Plan().log_every
    assert steps == set(range(every, Plan().steps + 1, every))
    assert f"plan: {Plan()}\n" in LOG and str(Shape()) in LOG and LOG.startswith("machine: ")


def test_training_took_no_longer_than_it_may():
    minutes = [float(each) for each in re.findall(r" ([0-9.]+) min$", LOG, re.MULTILINE)]
    assert max(minutes) == minutes[-1] <= 150


def test_the_card_shows_the_log_s_last_table():
    *_, table = LOG.strip().split("\n\n")
    assert table.splitlines()[0].startswith("row") and table in CARD
    assert "!" not in table
    for row in TARGETS:
        assert row in table
