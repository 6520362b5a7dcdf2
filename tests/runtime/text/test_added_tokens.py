"""Tokens that appear only beside tokenizer.json, and settings of tokenizer_config.json: transformers is the oracle."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Source
from toy_tokenizers import byte_level_source, metaspace_source, pieces_source, write_folder

from ramet.runtime.errors import ConfigError
from ramet.runtime.text.tokenizer import Tokenizer

NEW = "<|new|>"
FIRST = byte_level_source().get_vocab_size()  # the next free id
TEXTS = (
    f"the {NEW} fox", f"the{NEW}{NEW}", " the <|end|> fox<tool>", "the <|user|>  <|call|> ", "<s> the </s>x",
    f"fox<|call|>{NEW}the<pad>", "<image> the [MASK]",
)  # fmt: skip


def token(text: str, **flags: bool) -> dict[str, Any]:
    return {"content": text, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, **flags}


def check(folder: Path, texts: tuple[str, ...] = TEXTS) -> Tokenizer:
    """The folder encodes and decodes as in transformers."""
    from transformers import AutoTokenizer

    theirs, ours = AutoTokenizer.from_pretrained(folder), Tokenizer.from_folder(folder)
    for text in texts:
        ids = theirs(text).input_ids
        assert ours.encode(text) == ids, text
        for skip in (False, True):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip, clean_up_tokenization_spaces=False)
    if texts is not TEXTS:
        return ours
    assert ours.special_ids == {i for i, each in theirs.added_tokens_decoder.items() if each.special}
    assert {
        each: i for i, each in ((i, t.content) for i, t in theirs.added_tokens_decoder.items())
    } == ours.added_tokens
    if theirs.eos_token_id is not None and theirs.eos_token_id < FIRST + 3:
        assert theirs.eos_token_id in ours.eos_ids
    return ours


BESIDE: dict[str, dict[str, Any]] = {  # name of a file, without .json -> what it holds
    "decoder": {
        "tokenizer_config": {
            "added_tokens_decoder": {str(FIRST): token(NEW, special=True), str(FIRST + 1): token("<|call|>")},
            "eos_token": NEW,
        }
    },
    "decoder, out of order": {
        "tokenizer_config": {
            "added_tokens_decoder": {
                str(FIRST + 1): token("<|call|>", lstrip=True), str(FIRST): token(NEW, rstrip=True)
            },
            "eos_token": NEW, "additional_special_tokens": ["<|call|>"],
        }
    },
    "decoder that changes a flag": {
        "tokenizer_config": {"added_tokens_decoder": {"0": token("<|end|>", special=True, lstrip=True)}}
    },
    "decoder beside the old files, which do not count": {
        "tokenizer_config": {"added_tokens_decoder": {str(FIRST): token(NEW)}},
        "added_tokens": {"<|call|>": FIRST + 1},
        "special_tokens_map": {"eos_token": NEW},
    },
    "list": {"added_tokens": {NEW: FIRST, "<|call|>": FIRST + 1}, "tokenizer_config": {"eos_token": NEW}},
    "list and map": {
        "added_tokens": {NEW: FIRST, "<|call|>": FIRST + 1},
        "special_tokens_map": {"eos_token": token(NEW), "additional_special_tokens": ["<|call|>"]},
        "tokenizer_config": {"eos_token": "<|end|>"},
    },
    "map alone": {"special_tokens_map": {"eos_token": "<|end|>", "pad_token": "<pad>"}, "config": {"vocab_size": 999}},
    "names alone": {
        "tokenizer_config": {"eos_token": NEW, "mask_token": "[MASK]", "image_token": "<image>"},
        "config": {"vocab_size": FIRST + 3},
    },
    "further ones": {"tokenizer_config": {"additional_special_tokens": [NEW, "<|call|>"], "eos_token": "<|end|>"}},
    "further ones by name": {"tokenizer_config": {"extra_special_tokens": {"image_token": "<image>"}}},
    "a named one that is an ordinary token": {"tokenizer_config": {"bos_token": "the", "eos_token": "<|end|>"}},
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_tokens_beside_tokenizer_json_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    files = {"config": {}, **BESIDE[name]}
    tokenizer = check(write_folder(byte_level_source(), tmp_path, **files))
    named = [files.get(each, {}).get("eos_token") for each in ("tokenizer_config", "special_tokens_map")]
    if NEW in named and "not count" not in name:
        assert (
            tokenizer.encode(NEW) == [tokenizer.added_tokens[NEW]] and tokenizer.added_tokens[NEW] in tokenizer.eos_ids
        )


def test_pieces_get_tokens_as_well(tmp_path: Path) -> None:
    files = {"tokenizer_config": {"additional_special_tokens": [NEW], "eos_token": "</s>"}, "config": {}}
    check(write_folder(pieces_source(), tmp_path, **files))


def test_a_new_token_that_would_get_another_id_is_refused(tmp_path: Path) -> None:
    """The model has its embedding at the declared id; transformers would use the wrong one."""
    decoder = {"added_tokens_decoder": {str(FIRST + 7): token(NEW)}}
    write_folder(byte_level_source(), tmp_path, tokenizer_config=decoder)
    named = rf"tokenizer_config\.json: '<\|new\|>' has the id {FIRST + 7}, but its id in the tokenizer is {FIRST}: add"
    with pytest.raises(ConfigError, match=named):
        Tokenizer.from_folder(tmp_path)


def test_a_known_token_with_another_id_keeps_that_of_tokenizer_json(tmp_path: Path) -> None:
    decoder = {"added_tokens_decoder": {str(FIRST + 7): token("<tool>")}}
    tokenizer = check(write_folder(byte_level_source(), tmp_path, tokenizer_config=decoder, config={}))
    assert [f"'<tool>' has the id {FIRST + 7}" in note for note in tokenizer.notes] == [True]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"tokenizer_config": {"added_tokens_decoder": [1]}}, "added_tokens_decoder must be an object"),
        ({"tokenizer_config": {"added_tokens_decoder": {"x": token(NEW)}}}, '"x" is not a token id'),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"7": "x"}}},
            'added_tokens_decoder 7 is "x", must have a content',
        ),
        ({"tokenizer_config": {"eos_token": 7}}, "eos_token is 7, must be the text of a token"),
        ({"tokenizer_config": {"additional_special_tokens": "x"}}, 'additional_special_tokens is "x", must be a list'),
        ({"added_tokens": {NEW: None}}, "null is not a token id"),
    ],
)
def test_what_is_no_token_is_named(tmp_path: Path, files: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Tokenizer.from_folder(write_folder(byte_level_source(), tmp_path, **files))


def test_an_eos_token_that_the_model_has_no_number_for_ends_nothing(tmp_path: Path) -> None:
    files = {"tokenizer_config": {"eos_token": "<nowhere>"}, "config": {"vocab_size": FIRST}}
    tokenizer = Tokenizer.from_folder(write_folder(byte_level_source(), tmp_path, **files))
    assert not tokenizer.eos_ids
    assert f"no file gives the special token '<nowhere>' an id: it has {FIRST}" in tokenizer.notes[0]


def beginning() -> Source:
    source = byte_level_source()
    source.post_processor = processors.TemplateProcessing("<|user|> $A", "<|user|> $A $B", [("<|user|>", 1)])
    return source


FAST_CLASS = "PreTrainedTokenizerFast"
SOURCES = {"bytes": byte_level_source, "bytes with bos": beginning, "pieces": pieces_source}
GPT2, QWEN2, LLAMA, FAST = (
    {"tokenizer_class": f"{name}"} for name in ("GPT2Tokenizer", "Qwen2TokenizerFast", "LlamaTokenizerFast", FAST_CLASS)
)
BOS, ENDS = {"bos_token": "<|user|>"}, {"eos_token": "<|end|>"}
SOURCES |= {scheme: (lambda scheme=scheme: metaspace_source(scheme)) for scheme in ("first", "never")}


@pytest.mark.parametrize(
    ("kind", "asked", "said"),
    [
        ("bytes", {**GPT2, "add_prefix_space": True}, None),
        ("bytes", {**QWEN2, "add_prefix_space": True}, None),
        ("bytes", {**QWEN2, "add_prefix_space": False}, None),
        ("bytes", {**FAST, "add_prefix_space": True}, "add_prefix_space is true: tokenizer.json says otherwise"),
        ("bytes", {"add_prefix_space": True}, "add_prefix_space is true: tokenizer.json says otherwise"),
        ("pieces", {**LLAMA, "add_prefix_space": False}, None),
        ("pieces", {**FAST, "add_prefix_space": False}, "add_prefix_space is false: tokenizer.json says otherwise"),
        ("first", {**LLAMA, "add_prefix_space": False}, None),
        ("never", {**LLAMA, "add_prefix_space": True, "legacy": False}, None),
        ("bytes", {**BOS, "add_bos_token": True}, "add_bos_token is true: tokenizer.json adds none"),
        ("bytes with bos", {**BOS, "add_bos_token": False}, "add_bos_token is false: tokenizer.json adds it"),
        ("bytes with bos", {**BOS, "add_bos_token": True}, None),
        ("bytes with bos", {**ENDS, "add_eos_token": True}, "add_eos_token is true: tokenizer.json adds none"),
        ("bytes", {**ENDS, "add_eos_token": False}, None),
    ],
)  # fmt: skip
def test_what_comes_around_a_text_is_as_in_transformers(
    tmp_path: Path, kind: str, asked: dict[str, Any], said: str | None
) -> None:
    known = {} if "bytes" in kind else {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    folder = write_folder(SOURCES[kind](), tmp_path, tokenizer_config={**known, **asked}, config={})
    notes = check(folder, ("the quick fox", "fox", " jumps over", "x")).notes
    assert [said in each for each in notes if said] == [True] * len(notes) and bool(notes) == bool(said)


def test_a_tokenizer_that_its_files_complete_streams_and_spells(tmp_path: Path) -> None:
    files = BESIDE["decoder"]
    tokenizer = Tokenizer.from_folder(write_folder(byte_level_source(), tmp_path, **files))
    assert tokenizer.token_bytes(FIRST) == NEW.encode() and tokenizer.vocab_size == FIRST + 2
    assert FIRST not in dict((i, b) for b, i in tokenizer._ordinary(FIRST + 2))
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == files["tokenizer_config"]
    assert AddedToken(NEW).content in tokenizer.added_tokens
