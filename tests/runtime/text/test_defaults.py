"""Which keys of a generation_config.json become defaults."""

import json
import logging
from pathlib import Path

import pytest

from ramet.ipc.params import SamplingParams
from ramet.runtime.text.defaults import sampling_defaults


def defaults(folder: Path, config: dict) -> SamplingParams:
    (folder / "generation_config.json").write_text(json.dumps(config))
    return sampling_defaults(folder, "model")


def test_valid_keys_complete_the_table(tmp_path: Path) -> None:
    config = {"do_sample": False, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "max_new_tokens": 7}
    assert defaults(tmp_path, config) == SamplingParams(temperature=0.6, top_p=0.9, top_k=20, min_p=0.05)
    assert defaults(tmp_path, {"repetition_penalty": 1.1}) == SamplingParams(repetition_penalty=1.1)


def test_mode_openai_is_the_table(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.1}')
    assert sampling_defaults(tmp_path, "openai") == SamplingParams()


def test_no_file_is_the_table(tmp_path: Path) -> None:
    assert sampling_defaults(tmp_path, "model") == SamplingParams()


def test_top_k_zero_is_off_and_null_is_absent(tmp_path: Path) -> None:
    assert defaults(tmp_path, {"top_k": 0, "temperature": None}) == SamplingParams()


@pytest.mark.parametrize(
    "config",
    [{"top_p": 1.5}, {"temperature": "hot"}, {"repetition_penalty": 2.1}, {"num_beams": 4}, {"eta_cutoff": 0.5}],
)
def test_a_key_that_is_ignored_is_named_in_a_warning(tmp_path: Path, config: dict, caplog) -> None:
    logging.getLogger("ramet").propagate = True
    with caplog.at_level("WARNING", logger="ramet"):
        assert defaults(tmp_path, config) == SamplingParams()
    assert next(iter(config)) in caplog.text and "ignored" in caplog.text


def test_neutral_keys_are_silent(tmp_path: Path, caplog) -> None:
    logging.getLogger("ramet").propagate = True
    defaults(tmp_path, {"repetition_penalty": 1.0, "num_beams": 1, "top_p": 1.0, "pad_token_id": 0})
    assert caplog.text == ""
