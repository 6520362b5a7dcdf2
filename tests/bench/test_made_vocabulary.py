"""The tokenizer that benches make up: its size, its ends, and that its merges lead to its tokens."""

import json
from pathlib import Path

import pytest

from ramet.bench import vocabulary
from ramet.bench.errors import BadOption
from ramet.runtime.text.tokenizer import Tokenizer

SIZE = 4000


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    vocabulary.write(folder, SIZE)
    return Tokenizer.from_folder(folder)


def test_it_has_the_size_that_was_asked_for(tokenizer: Tokenizer):
    assert tokenizer.vocab_size == SIZE
    assert all(tokenizer.token_bytes(i) for i in range(SIZE))


def test_its_end_is_known(tokenizer: Tokenizer):
    assert tokenizer.eos_ids == {vocabulary.end_id(SIZE)}


def test_a_word_is_spelled_by_its_token(tokenizer: Tokenizer):
    """But for a few beginnings of words, which have another spelling where they stand alone."""
    texts = {i: (tokenizer.token_bytes(i) or b"").decode("utf-8", "ignore") for i in range(SIZE)}
    words = {i: text for i, text in texts.items() if text.strip().isascii() and text.strip().isalpha()}
    assert len(words) > SIZE // 3
    other = [text for i, text in words.items() if tokenizer.encode(text, add_special_tokens=False) != [i]]
    assert len(other) < 0.02 * len(words), other


def test_a_seed_makes_the_same_one_again():
    first, again, other = (json.dumps(vocabulary.tokenizer_json(1000, seed)) for seed in (0, 0, 1))
    assert first == again != other


def test_it_holds_all_bytes_at_least(tmp_path: Path):
    with pytest.raises(BadOption, match="511"):
        vocabulary.write(tmp_path, vocabulary.MIN_SIZE - 1)
