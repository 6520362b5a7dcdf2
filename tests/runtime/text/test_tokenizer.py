"""The tokenizer's tables: end tokens, sizes, bytes of each token, and the bound that refuses long texts unread."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Source
from toy_tokenizers import byte_level_source, wordpiece_source, write_folder

from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.text.tokenizer import Tokenizer, spelling_of

WHOLE_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.mark.parametrize(
    ("files", "eos"),
    [
        ({"generation_config": {"eos_token_id": [1, 7]}, "config": {"eos_token_id": 2}}, {1, 2, 7}),
        ({"generation_config": {"eos_token_id": 7}, "tokenizer_config": {"eos_token": "<|end|>"}}, {0, 7}),
        ({"config": {"eos_token_id": 2, "text_config": {"eos_token_id": [3, True, -1]}}}, {2, 3}),
        ({"generation_config": {}, "config": {"eos_token_id": 2}}, {2}),
        ({"generation_config": {"eos_token_id": None}, "config": {"text_config": {"eos_token_id": 3}}}, {3}),
        ({"config": {}, "tokenizer_config": {"eos_token": "<|end|>"}}, {0}),
        ({"config": {}, "tokenizer_config": {"eos_token": {"content": "<|user|>"}}}, {1}),
        ({"config": {}, "tokenizer_config": {"eos_token": "<nowhere>"}}, set()),
        ({}, set()),
    ],
)
def test_end_tokens_are_those_that_any_file_names(tmp_path: Path, files: dict, eos: set[int]) -> None:
    assert Tokenizer.from_folder(write_folder(byte_level_source(), tmp_path, **files)).eos_ids == eos


def test_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokenizer.from_folder(tmp_path)


def test_broken_generation_config_is_named(tmp_path: Path) -> None:
    write_folder(byte_level_source(), tmp_path)
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"generation_config\.json is not valid JSON"):
        Tokenizer.from_folder(tmp_path)


def test_a_prompt_is_never_cut_in_silence(tmp_path: Path) -> None:
    source = byte_level_source()
    source.enable_truncation(2)
    source.enable_padding(length=64)
    tokenizer = Tokenizer.from_folder(write_folder(source, tmp_path))
    assert tokenizer.decode(tokenizer.encode("xyzzy plugh")) == "xyzzy plugh"


def test_sizes_and_specials(byte_level: Tokenizer, byte_pieces: Tokenizer) -> None:
    tool = byte_level.encode("<tool>")[0]
    assert byte_level.vocab_size == tool + 1
    assert byte_level.special_ids == {0, 1}  # <tool> is added, but not special
    assert byte_pieces.special_ids == {0, 1, 2}
    assert byte_pieces.encode("the", add_special_tokens=False) == byte_pieces.encode("the")[1:]


def test_token_bytes(byte_level: Tokenizer, byte_pieces: Tokenizer, wordpiece: Tokenizer) -> None:
    space_the = byte_level.encode(" the")
    assert b"".join(byte_level.token_bytes(i) or b"" for i in space_the) == b" the"
    assert byte_level.token_bytes(byte_level.vocab_size) is None
    assert [byte_pieces.token_bytes(3 + byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert byte_pieces.token_bytes(byte_pieces.encode(" fox")[-1]) == b" fox"
    assert wordpiece.token_bytes(3) is None


@settings(max_examples=200, deadline=None)
@given(WHOLE_TEXT)
def test_byte_level_tokens_spell_the_text(byte_level: Tokenizer, text: str) -> None:
    ids = byte_level.encode(text, add_special_tokens=False)
    assert b"".join(byte_level.token_bytes(i) or b"" for i in ids).decode() == text


def test_lone_surrogate_is_the_clients_error(byte_level: Tokenizer) -> None:
    with pytest.raises(ClientError, match=r"lone surrogate .* at character 2, must be valid Unicode"):
        byte_level.encode("ab\ud800c")


def test_decoders_with_a_table_are_told_apart() -> None:
    def known(decoder: object) -> bool:
        return spelling_of(json.loads(decoder.__getstate__())) is not None

    replace, fuse = decoders.Replace("▁", " "), decoders.Fuse()
    assert known(decoders.ByteLevel()) and known(decoders.Metaspace())
    assert known(decoders.Sequence([replace, decoders.ByteFallback(), fuse, decoders.Strip(" ", 1, 0)]))
    assert known(decoders.Sequence([replace, decoders.ByteFallback(), fuse]))
    assert not known(decoders.Sequence([replace, decoders.Strip(" ", 1, 0)]))  # strips every token
    assert not known(decoders.Sequence([replace, fuse, decoders.Strip(" ", 0, 1)]))  # strips the end
    assert not known(decoders.Sequence([fuse, replace]))  # replaces across tokens
    assert not known(decoders.WordPiece()) and not known(decoders.BPEDecoder()) and not known(decoders.CTC())
    assert spelling_of(None) is None


MIXED_TEXT = st.one_of(WHOLE_TEXT, st.text("the fox\u0301é東京STOP<|end|>", max_size=200))


@settings(max_examples=300, deadline=None)
@given(MIXED_TEXT, st.integers(1, 40))
def test_a_refused_text_really_is_too_long(
    byte_level: Tokenizer, byte_pieces: Tokenizer, text: str, length: int
) -> None:
    for tokenizer in (byte_level, byte_pieces):
        if tokenizer.too_long(text, length):
            assert len(tokenizer.encode(text, add_special_tokens=False)) > length
        assert tokenizer.min_tokens(len(text.encode())) <= len(tokenizer.encode(text, add_special_tokens=False))


def test_megabytes_are_refused_unread(byte_level: Tokenizer, byte_pieces: Tokenizer) -> None:
    for tokenizer in (byte_level, byte_pieces):
        assert tokenizer.too_long("the fox " * 700_000, 4096)
        assert not tokenizer.too_long("the fox " * 100, 4096)


def test_nothing_is_known_of_the_tokens_of_a_tokenizer_that_drops_text(wordpiece: Tokenizer) -> None:
    assert wordpiece.bytes_per_token is None and wordpiece.min_tokens(1 << 30) == 0


def test_normal_forms_loosen_the_bound(tmp_path: Path) -> None:
    source = byte_level_source()
    plain = Tokenizer(source).bytes_per_token
    source.normalizer = normalizers.Sequence([normalizers.NFKC()])
    normalised = Tokenizer(source)
    assert normalised.bytes_per_token == 8 * plain
    text = "\U0001d41a\U0001d41b" * 64  # bold letters: 512 bytes that become 128
    assert len(normalised.encode(text)) <= 128 and not normalised.too_long(text, 128)


def _strips_marks(source: Source) -> None:
    source.normalizer = normalizers.StripAccents()


def _erases(source: Source) -> None:
    source.normalizer = normalizers.Replace("x", "")


def _drops_spaces(source: Source) -> None:
    source.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def _eats_spaces(source: Source) -> None:
    source.add_special_tokens([AddedToken("<mask>", lstrip=True)])


@pytest.mark.parametrize("loosen", [_strips_marks, _erases, _drops_spaces, _eats_spaces])
def test_no_bound_where_text_may_vanish(loosen) -> None:
    source = byte_level_source()
    loosen(source)
    tokenizer = Tokenizer(source)
    assert tokenizer.bytes_per_token is None
    assert not tokenizer.too_long("x" * 100_000, 2)


def test_no_bound_where_a_token_swallows_the_unknown() -> None:
    assert Tokenizer(wordpiece_source()).bytes_per_token is None
