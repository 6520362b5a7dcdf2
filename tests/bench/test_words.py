"""The made-up language of the workloads: one word is one token, and what a model draws survives text and back."""

import random
from pathlib import Path

import pytest

from ramet.bench.programs import words
from ramet.runtime.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("words")
    words.write_model(folder)
    return Tokenizer.from_folder(folder)


def test_a_word_is_a_token(tokenizer: Tokenizer):
    text = words.text(random.Random(1), 500)
    assert len(tokenizer.encode(text)) == 500
    assert tokenizer.vocab_size == words.VOCABULARY == len(set(words.words())) + words.FIRST_WORD


def test_any_ids_survive_text_and_back(tokenizer: Tokenizer):
    draw = random.Random(2)
    for least in (0, words.FIRST_WORD, words.END_ID):  # all tokens, words alone, words and the end
        ids = [draw.randrange(least, words.VOCABULARY) for _ in range(5000)]
        assert tokenizer.encode(tokenizer.decode(ids)) == ids
    spelled = [draw.randrange(words.FIRST_WORD) for _ in range(5000)]
    assert tokenizer.encode(tokenizer.decode(spelled)) == spelled


def test_other_texts_are_spelled_by_characters(tokenizer: Tokenizer):
    text = '{"name": "Jane", "question": " questions?"}\n'
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and len(ids) == len(text) and max(ids) < words.FIRST_WORD


def test_joined_texts_have_the_ids_of_their_parts(tokenizer: Tokenizer):
    draw = random.Random(3)
    parts = [words.text(draw, 3), "\n", words.text(draw, 1), '{"a": ', words.text(draw, 2), "x", words.text(draw, 1)]
    assert tokenizer.encode("".join(parts)) == [i for part in parts for i in tokenizer.encode(part)]


def test_the_end_is_the_end_and_has_a_text(tokenizer: Tokenizer):
    assert tokenizer.eos_ids == {words.END_ID} and not tokenizer.special_ids
    assert tokenizer.decode([words.END_ID]) == words.END
