"""The folder of the bundled model of pictures: its size, its shape, and a card and a log that say the same of it."""

import hashlib
import json
import re

from ramet.runtime.config import BUNDLED_VISION, BUNDLED_VISION_MODEL, make_args
from scripts.demo_model.pictures.cases import PICTURE_TARGETS
from scripts.demo_model.pictures.folder import CHAT_TEMPLATE
from scripts.demo_model.pictures.network import PictureShape
from scripts.demo_model.pictures.train import PicturePlan

LOG = (BUNDLED_VISION_MODEL / "training.log").read_text()
CARD = (BUNDLED_VISION_MODEL / "README.md").read_text()


def test_the_folder_is_small_and_whole() -> None:
    sizes = {path.name: path.stat().st_size for path in BUNDLED_VISION_MODEL.iterdir()}
    assert sum(sizes.values()) <= 6 * 10**6
    assert sizes.keys() >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "preprocessor_config.json",
        "processor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_the_folder_has_the_script_s_shape() -> None:
    config = json.loads((BUNDLED_VISION_MODEL / "config.json").read_text())
    shape = PictureShape()
    assert config["architectures"] == ["LlavaForConditionalGeneration"]
    for part, asked in (("text_config", shape.text.config()), ("vision_config", shape.tower.config().to_dict())):
        names = [name for name in asked if name.startswith(("hidden_size", "num_", "vocab", "patch", "image_size"))]
        assert len(names) >= 4 and {name: config[part][name] for name in names} == {name: asked[name] for name in names}
    assert json.loads((BUNDLED_VISION_MODEL / "tokenizer_config.json").read_text())["chat_template"] == CHAT_TEMPLATE


def test_the_log_is_of_the_whole_plan() -> None:
    """Steps come twice where a run was cut off and went on from the state saved before."""
    steps = {int(step) for step in re.findall(r"^step (\d+) ", LOG, re.MULTILINE)}
    every = PicturePlan().log_every
    assert steps == set(range(every, PicturePlan().steps + 1, every))
    assert f"plan: {PicturePlan()}\n" in LOG and str(PictureShape()) in LOG and LOG.startswith("machine: ")


def test_training_took_no_longer_than_it_may() -> None:
    """Of one thread, whose CPU time is what it takes on a machine with nothing beside it."""
    taken = [(float(cpu), float(wall)) for cpu, wall in re.findall(r" (\S+) CPU min (\S+) min$", LOG, re.MULTILINE)]
    assert max(taken) == taken[-1] and taken[-1][0] <= 40


def test_the_weights_are_those_of_the_log() -> None:
    *_, digest = re.findall(r"^wrote model\.safetensors, SHA-256 (\w+)$", LOG, re.MULTILINE)
    assert hashlib.sha256((BUNDLED_VISION_MODEL / "model.safetensors").read_bytes()).hexdigest() == digest


def test_the_card_shows_the_log_s_last_table() -> None:
    *_, table = LOG.strip().split("\n\n")
    assert table.splitlines()[0].startswith("row") and table in CARD
    assert "!" not in table
    assert all(row in table for row in PICTURE_TARGETS)


def test_its_name_as_a_path_is_its_folder() -> None:
    args = make_args(model_path=BUNDLED_VISION)
    assert args.model_folder == args.tokenizer_folder == BUNDLED_VISION_MODEL
    assert args.model_name == "ramet-bundled-vision"
