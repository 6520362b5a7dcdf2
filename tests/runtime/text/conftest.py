"""One tokenizer of each kind for all tests here."""

from pathlib import Path

import pytest
from toy_tokenizers import byte_level_source, pieces_source, wordpiece_source, write_folder

from ramet.runtime.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def byte_level_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("byte-level")
    return write_folder(byte_level_source(), folder, config={}, generation_config={"eos_token_id": 0})


@pytest.fixture(scope="session")
def byte_level(byte_level_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(byte_level_folder)


@pytest.fixture(scope="session")
def byte_pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(write_folder(pieces_source(), tmp_path_factory.mktemp("pieces"), config={}))


@pytest.fixture(scope="session")
def wordpiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(write_folder(wordpiece_source(), tmp_path_factory.mktemp("wordpiece"), config={}))
