"""A stream of tokens against the decode of the whole, for the three kinds of tokenizers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Source
from tokenizers import decoders, models, pre_tokenizers
from toy_tokenizers import byte_level_source, pieces_source, wordpiece_source

from ramet.runtime.text.decode import MAX_CONTEXT, MAX_HELD, TextDecoder
from ramet.runtime.text.tokenizer import Tokenizer

VOCABULARY = 421  # of the byte-level tokenizer
PIECES = 280
IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=40)
WORDS = st.text(st.sampled_from("the fox é東京👍🏽 \nß.STOP"), max_size=30)


def stream(tokenizer: Tokenizer, ids: list[int], **options: bool) -> list[str]:
    decoder = TextDecoder(tokenizer, **options)
    return [*(decoder.push(i) for i in ids), decoder.flush()]


@settings(max_examples=500, deadline=None)
@given(IDS, st.booleans())
def test_byte_level_stream_equals_whole_text(byte_level: Tokenizer, ids: list[int], skip: bool) -> None:
    texts = stream(byte_level, ids, skip_special_tokens=skip, spaces_between_special_tokens=False)
    assert "".join(texts) == byte_level.decode(ids, skip_special_tokens=skip)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=30))
def test_invalid_bytes_become_replacement_characters_at_once(byte_level: Tokenizer, data: bytes) -> None:
    token_of = {byte_level.token_bytes(i): i for i in range(VOCABULARY - 1, -1, -1)}
    decoder = TextDecoder(byte_level)
    shown = ""
    for count, byte in enumerate(data, start=1):
        shown += decoder.push(token_of[bytes([byte])])
        waiting = len(data[:count]) - len_of_decided(data[:count])
        assert waiting <= 3
        assert shown == data[: count - waiting].decode(errors="replace")
    assert shown + decoder.flush() == data.decode(errors="replace")


def len_of_decided(data: bytes) -> int:
    """Bytes before a trailing start of a character that could still become one."""
    for held in (3, 2, 1):
        tail = data[len(data) - held :] if held <= len(data) else b""
        if tail and any(can_complete(tail + b"\x80" * k) or can_complete(tail + b"\xbf" * k) for k in (1, 2, 3)):
            return len(data) - held
    return len(data)


def can_complete(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


@settings(max_examples=300, deadline=None)
@given(WORDS)
def test_pieces_stream_equals_the_text_that_continues_a_prompt(byte_pieces: Tokenizer, text: str) -> None:
    ids = byte_pieces.encode(text, add_special_tokens=False)
    prompt = byte_pieces.encode("o.", add_special_tokens=False)
    whole = byte_pieces.decode(prompt + ids)[len(byte_pieces.decode(prompt)) :]
    assert "".join(stream(byte_pieces, ids)) == whole


def test_pieces_keep_a_leading_space(byte_pieces: Tokenizer) -> None:
    ids = byte_pieces.encode("fox", add_special_tokens=False)
    assert byte_pieces.decode(ids) == "fox"
    assert stream(byte_pieces, ids) == [" fox", ""]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.integers(0, PIECES - 1), st.sampled_from([3 + 0xE2, 3 + 0x82, 3 + 0xAC])), max_size=20))
def test_pieces_stream_joins_byte_tokens(byte_pieces: Tokenizer, ids: list[int]) -> None:
    spelled = b"".join(byte_pieces.token_bytes(i) or b"" for i in ids if i not in byte_pieces.special_ids)
    assert "".join(stream(byte_pieces, ids)) == spelled.decode(errors="replace")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=25))
def test_neighbour_dependent_stream_equals_the_text_that_continues_a_prompt(
    wordpiece: Tokenizer, ids: list[int]
) -> None:
    whole = wordpiece.decode([*wordpiece.anchor, *ids])[1:]  # the anchor is "a"
    assert "".join(stream(wordpiece, ids)) == whole


def suffix_source() -> Source:
    """Words end in </w>: the space after a word is certain only when the next token comes."""
    words = ["a</w>", "fo", "x</w>", "fox</w>", "s</w>", ".</w>"]
    source = Source(models.BPE({t: i for i, t in enumerate([*words, "f", "o"])}, [], end_of_word_suffix="</w>"))
    source.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    source.decoder = decoders.BPEDecoder("</w>")
    return source


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=25))
def test_word_suffix_stream_equals_the_text_that_continues_a_prompt(ids: list[int]) -> None:
    tokenizer = Tokenizer(suffix_source())
    whole = tokenizer.decode([*tokenizer.anchor, *ids])[1:]
    assert "".join(stream(tokenizer, ids)) == whole


def late_replace_source() -> Source:
    """Byte tokens, but "▁" becomes a space after the tokens are joined: no table holds that."""
    source = pieces_source()
    source.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " ")])
    return source


@settings(max_examples=200, deadline=None)
@given(WORDS)
def test_neighbour_dependent_stream_joins_byte_tokens(text: str) -> None:
    tokenizer = Tokenizer(late_replace_source())
    assert tokenizer.pieces is None
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_token_without_text_does_not_make_the_next_one_the_first(wordpiece: Tokenizer) -> None:
    fox = wordpiece.encode("fox", add_special_tokens=False)
    assert stream(wordpiece, [100_000] * 40 + fox) == [""] * 40 + [" fox", ""]


class LongestDecode(Tokenizer):
    longest = 0

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        self.longest = max(self.longest, len(ids))
        return super().decode(ids, skip_special_tokens)


def test_a_token_costs_the_same_however_long_the_text() -> None:
    for ids in ([4] * 200, [100_000] * 200, [4, 100_000] * 100):
        tokenizer = LongestDecode(wordpiece_source())
        stream(tokenizer, ids)
        assert tokenizer.longest <= MAX_CONTEXT + MAX_HELD + 1


def test_special_tokens_that_bring_their_space_get_no_other(wordpiece: Tokenizer) -> None:
    assert "".join(stream(wordpiece, [1, 1, 1], skip_special_tokens=False)) == " [SEP] [SEP] [SEP]"


def test_space_between_special_tokens_comes_after_a_broken_character() -> None:
    source = byte_level_source()
    source.add_special_tokens(["é"])  # in the byte alphabet: the byte E9, which begins a character
    tokenizer = Tokenizer(source)
    ids = [source.token_to_id("é")] * 2
    assert stream(tokenizer, ids, skip_special_tokens=False) == ["", "\ufffd ", "\ufffd"]


def test_a_character_in_three_tokens_is_shown_with_its_last(byte_level: Tokenizer) -> None:
    first, second, third = (byte_level_id(byte_level, byte) for byte in "京".encode())
    #                                             E4          BA           AC
    assert stream(byte_level, [first, second, third]) == ["", "", "京", ""]
    assert stream(byte_level, [first, second]) == ["", "", "\ufffd"]
    assert stream(byte_level, [first, first, second, third]) == ["", "\ufffd", "", "京", ""]


def byte_level_id(tokenizer: Tokenizer, byte: int) -> int:
    return next(i for i in range(VOCABULARY) if tokenizer.token_bytes(i) == bytes([byte]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "thethe"),
        ({"skip_special_tokens": False}, "<|end|> <|user|>the<|end|><tool><tool>the<|user|> <|user|> <|end|>"),
        (
            {"skip_special_tokens": False, "spaces_between_special_tokens": False},
            "<|end|><|user|>the<|end|><tool><tool>the<|user|><|user|><|end|>",
        ),
    ],
)
def test_one_space_goes_between_adjacent_special_tokens(byte_level: Tokenizer, options: dict, text: str) -> None:
    tool = byte_level.encode("<tool>")
    the = byte_level.encode("the")
    ids = [0, 1, *the, 0, *tool, *tool, *the, 1, 1, 0]
    expected = text if options else text.replace("thethe", "the<tool><tool>the")
    assert "".join(stream(byte_level, ids, **options)) == expected


def test_hidden_special_token_does_not_break_a_character(byte_level: Tokenizer) -> None:
    first, second = (byte_level_id(byte_level, byte) for byte in "é".encode())
    assert stream(byte_level, [first, 0, second]) == ["", "", "é", ""]


def test_ids_outside_the_vocabulary_add_nothing(byte_level: Tokenizer, wordpiece: Tokenizer) -> None:
    for tokenizer in (byte_level, wordpiece):
        assert "".join(stream(tokenizer, [100_000, 2_000_000])) == ""


def test_added_token_with_a_character_outside_the_alphabet_stands_for_itself() -> None:
    source = byte_level_source()
    source.add_tokens(["a b", "日本"])
    tokenizer = Tokenizer(source)
    ids = tokenizer.encode("xa b日本")
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == "xa b日本"
