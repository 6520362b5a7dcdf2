"""Forced text becomes tokens: exactly its bytes, no control token, and nearly always the canonical tokenisation."""

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from tiny_model import write_tokenizer
from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from toy_tokenizers import byte_level_source, metaspace_source, pieces_source, wordpiece_source

from ramet.bench.vocabulary import WORDS
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.grammar.jump import NOTHING, RETOKENIZE_WINDOW, Retokenizer
from ramet.runtime.grammar.vocabulary import control_tokens
from ramet.runtime.text.tokenizer import Tokenizer

MARKS = [" "] * 12 + [", ", ". ", ".\n", ": ", "s ", "-", " (", ") ", " | ", "’s ", " 12 ", "_"]


def tiny() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), vocab=600, seed=3, context=128)
        return Tokenizer.from_folder(Path(folder))


@cache
def composing() -> Tokenizer:
    """It changes a text that has é as two characters."""
    source = byte_level_source()
    source.normalizer = normalizers.NFC()
    return Tokenizer(source)


EXACT: dict[str, Callable[[], Tokenizer]] = {
    "bundled": cache(lambda: Tokenizer.from_folder(BUNDLED_MODEL)),
    "tiny": cache(tiny),
    "byte-level": cache(lambda: Tokenizer(byte_level_source())),
    "prepended": cache(lambda: Tokenizer(pieces_source())),
    "metaspace": cache(lambda: Tokenizer(metaspace_source("first"))),
    "metaspace always": cache(lambda: Tokenizer(metaspace_source("always"))),
}
CHANGED = ["▁", "e\u0301", "\u0301", "\u212b"]  # by some tokenizers, which then spell another text
PARTS = ["<|end|>", "<|im_end|>", "<tool>", "<|", "end", "|>", "</s>", "<unk>", " ", "  ", "\n", "a", "the", "1", "23"]
PARTS += ['{"name": "', '", "', "},", "é", "東", "京", "👍🏽", "\0", "fox"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
ANY_TEXTS = st.lists(st.sampled_from([*PARTS, *CHANGED]), max_size=12).map("".join)


def spelled(tokenizer: Tokenizer, tokens: Sequence[int]) -> bytes:
    pieces = [tokenizer.token_bytes(token) for token in tokens]
    return b"".join(piece for piece in pieces if piece is not None)


def after(tokenizer: Tokenizer, window: list[int], forced: bytes) -> tuple[list[int], list[int]]:
    """What is kept of the window, and the new tokens."""
    num_dropped, tokens = Retokenizer(tokenizer).retokenize(window, forced)
    return window[: len(window) - num_dropped], tokens


def whole_characters(data: bytes) -> bytes:
    return data.decode(errors="ignore").encode()


@pytest.mark.parametrize("name", EXACT)
@examples(100, 3000)
@given(before=TEXTS, forced=TEXTS, cut=st.integers(0, 3), length=st.integers(0, RETOKENIZE_WINDOW))
def test_tokens_spell_the_window_and_what_is_forced(name: str, before: str, forced: str, cut: int, length: int) -> None:
    tokenizer = EXACT[name]()
    control = {*control_tokens(tokenizer).values()}
    window = tokenizer.encode(before, add_special_tokens=False)[-length:] if length else []
    data = forced.encode()[: len(forced.encode()) - cut]
    kept, tokens = after(tokenizer, window, data)
    assert spelled(tokenizer, [*kept, *tokens]) == spelled(tokenizer, window) + whole_characters(data)
    assert control.isdisjoint(tokens)
    assert [token for token in window if token in control] == [token for token in kept if token in control]


@pytest.mark.parametrize("name", EXACT)
@examples(50, 2000)
@given(before=TEXTS, forced=TEXTS, split=st.integers(1, 3))
def test_a_character_that_was_begun_is_finished(name: str, before: str, forced: str, split: int) -> None:
    tokenizer = EXACT[name]()
    halves = [token for byte in "東".encode()[:split] for token in single(tokenizer, byte)]
    window = [*tokenizer.encode(before, add_special_tokens=False), *halves][-RETOKENIZE_WINDOW:]
    data = "東".encode()[split:] + forced.encode()
    kept, tokens = after(tokenizer, window, data)
    assert spelled(tokenizer, [*kept, *tokens]) == spelled(tokenizer, window) + data


@cache
def single(tokenizer: Tokenizer, byte: int) -> list[int]:
    """A token of one byte."""
    return [next(token for token in range(tokenizer.vocab_size) if tokenizer.token_bytes(token) == bytes([byte]))]


@pytest.mark.parametrize("make", [composing, *EXACT.values()], ids=["composing", *EXACT])
@examples(50, 2000)
@given(before=ANY_TEXTS, forced=ANY_TEXTS)
def test_a_text_that_no_tokens_spell_is_left_to_the_model(
    make: Callable[[], Tokenizer], before: str, forced: str
) -> None:
    tokenizer = make()
    window = tokenizer.encode(before, add_special_tokens=False)[-RETOKENIZE_WINDOW:]
    result = Retokenizer(tokenizer).retokenize(window, forced.encode())
    kept = window[: len(window) - result.num_dropped]
    new = spelled(tokenizer, [*kept, *result.tokens])
    assert new == spelled(tokenizer, window) + forced.encode() or result == NOTHING


def test_byte_level_tokens_spell_every_text() -> None:
    forced = "".join([*PARTS, *CHANGED]).encode()
    assert spelled(EXACT["bundled"](), after(EXACT["bundled"](), [], forced)[1]) == forced


def test_text_of_a_control_token_is_spelled_with_others() -> None:
    tokenizer = EXACT["bundled"]()
    text, token = next(iter(control_tokens(tokenizer).items()))
    assert tokenizer.encode(text) == [token]
    _, tokens = Retokenizer(tokenizer).retokenize([], f"a{text}b{text}".encode())
    assert spelled(tokenizer, tokens) == f"a{text}b{text}".encode() and token not in tokens


def test_a_word_that_was_begun_becomes_its_one_token() -> None:
    tokenizer = EXACT["bundled"]()
    canonical = tokenizer.encode('{"name": "', add_special_tokens=False)
    begun = tokenizer.encode('{"na', add_special_tokens=False)
    kept, tokens = after(tokenizer, begun, b'me": "')
    assert [*kept, *tokens] == canonical and kept != begun


def test_a_short_output_is_spelled_anew_from_its_start() -> None:
    tokenizer = EXACT["bundled"]()
    begun = [token for part in ("na", 'me": "house') for token in tokenizer.encode(part, add_special_tokens=False)]
    kept, tokens = after(tokenizer, begun, b'": ')
    assert len(begun) < RETOKENIZE_WINDOW
    assert [*kept, *tokens] == tokenizer.encode('name": "house": ', add_special_tokens=False)


def test_nothing_to_append_takes_nothing_back() -> None:
    tokenizer = EXACT["bundled"]()
    window = [token for byte in b"ab\xe6" for token in single(tokenizer, byte)]
    for forced in (b"", b"\x9d"):
        assert Retokenizer(tokenizer).retokenize(window, forced) == NOTHING


def test_retokenising_is_possible_where_tokens_have_a_text_of_their_own() -> None:
    assert all(Retokenizer(make()).possible for make in EXACT.values())
    assert not Retokenizer(Tokenizer(wordpiece_source())).possible
    lowering = byte_level_source()
    lowering.normalizer = normalizers.Lowercase()
    assert not Retokenizer(Tokenizer(lowering)).possible


def share_canonical(tokenizer: Tokenizer, texts: list[str], window: int) -> float:
    """Of texts that are cut anywhere, where the rest is forced."""
    draw, canonical = random.Random(1), 0
    retokenizer = Retokenizer(tokenizer)
    for text in texts:
        cut = draw.randrange(1, len(text))
        before = tokenizer.encode(text[:cut], add_special_tokens=False)
        num_dropped, tokens = retokenizer.retokenize(before[-window:] if window else [], text[cut:].encode())
        outcome = before[: len(before) - num_dropped] + tokens
        canonical += outcome == tokenizer.encode(text, add_special_tokens=False)
    return canonical / len(texts)


def passages(number: int) -> list[str]:
    """Prose and JSON."""
    draw = random.Random(0)
    found = []
    for index in range(number):
        if index % 2:
            values = {draw.choice(["name", "house", "created_at"]): draw.randrange(10**6), "spells": ["naïve", "東京"]}
            found.append(json.dumps(values, ensure_ascii=False, separators=draw.choice([(", ", ": "), (",", ":")])))
        else:
            words = [draw.choice(WORDS) + draw.choice(MARKS) for _ in range(40)]
            found.append("".join(words)[draw.randrange(10) :][: draw.randint(10, 100)])
    return found


@pytest.mark.parametrize("name", ["bundled", "tiny", "metaspace"])
def test_the_window_gives_the_canonical_tokens_of_nearly_every_text(name: str) -> None:
    tokenizer, texts = EXACT[name](), passages(400)
    assert share_canonical(tokenizer, texts, RETOKENIZE_WINDOW) > 0.99
    assert share_canonical(tokenizer, texts, 0) < 0.9


def test_a_window_that_begins_inside_a_group_of_digits_keeps_the_groups() -> None:
    source, draw = byte_level_source(), random.Random(4)
    splitters = [
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.ByteLevel(False, use_regex=False),
    ]
    source.pre_tokenizer = pre_tokenizers.Sequence(splitters)
    numbers = [str(draw.randrange(10**30)) for _ in range(200)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    source.train_from_iterator(numbers, BpeTrainer(vocab_size=350, initial_alphabet=alphabet, show_progress=False))
    tokenizer = Tokenizer(source)
    canonical = 0
    for number in numbers:
        tokens, rest = tokenizer.encode(number, add_special_tokens=False), str(draw.randrange(10**9))
        kept, new = after(tokenizer, tokens[-RETOKENIZE_WINDOW:], rest.encode())
        outcome = tokens[:-RETOKENIZE_WINDOW] + kept + new
        canonical += outcome == tokenizer.encode(number + rest, add_special_tokens=False)
    assert canonical > 0.9 * len(numbers), canonical
