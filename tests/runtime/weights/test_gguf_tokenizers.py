"""Tokenizers of GGUF files: the ids, texts, ends and chat template of the folder that each was written from."""

from pathlib import Path
from typing import Any

import pytest
from gguf_checkpoints import write_gguf
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from tiny_model import CHAT_TEMPLATE, make_tiny
from tokenizers import Regex, pre_tokenizers
from toy_tokenizers import CORPUS, byte_level_source, gemma_source, pieces_source, write_folder

from ramet.runtime.config import make_args, resolve
from ramet.runtime.errors import ConfigError
from ramet.runtime.gguf.folder import write_folder as write_files
from ramet.runtime.gguf.tokenizer import LLAMA3, QWEN2, SPLITS
from ramet.runtime.text.template_files import read_templates
from ramet.runtime.text.tokenizer import Tokenizer

TEXTS = [
    *CORPUS[:3],
    "the  fox\n\n  the",
    "12345 67\t8",
    "ünïcode 東京 \U0001f44d the",
    "",
    " ",
    "<|end|>the<tool>fox<s>",
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def both(folder: Path, pre: str = "gpt-2") -> tuple[Tokenizer, Tokenizer, Path]:
    """Of the folder, of the file, and where that one is."""
    file = write_gguf(folder, folder / "model.gguf", pre=pre)
    made = resolve(make_args(model_path=str(file))).tokenizer_folder
    return Tokenizer.from_folder(folder), Tokenizer.from_folder(made), made


def with_tokenizer(folder: Path, source: Any, **settings: Any) -> Path:
    make_tiny(folder, vocab=512)
    return write_folder(source, folder, tokenizer_config=settings)


def check(wanted: Tokenizer, found: Tokenizer) -> None:
    for text in TEXTS:
        ids = wanted.encode(text)
        assert found.encode(text) == ids
        assert found.encode(text, False) == wanted.encode(text, False)
        assert found.decode(ids) == wanted.decode(ids) and found.decode(ids, False) == wanted.decode(ids, False)
    assert found.special_ids == wanted.special_ids


def test_byte_level_with_its_chat_template_and_ends(tmp_path: Path) -> None:
    wanted, found, made = both(make_tiny(tmp_path / "model"))
    check(wanted, found)
    assert found.eos_ids >= {3} and found.encode("the") == wanted.encode("the")
    assert read_templates(made, "").default == CHAT_TEMPLATE


@pytest.mark.parametrize(("pre", "split"), [("llama-bpe", LLAMA3), ("qwen2", QWEN2)])
def test_words_end_where_the_file_says(tmp_path: Path, pre: str, split: str) -> None:
    source = byte_level_source()
    source.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    check(*both(with_tokenizer(tmp_path / "model", source, eos_token="<|end|>"), pre)[:2])


def test_each_digit_of_smollm_is_a_word(tmp_path: Path) -> None:
    """Its tokenizer.json has two steps of the library, for which a file has one name."""
    source = byte_level_source()
    steps = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    source.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    check(*both(with_tokenizer(tmp_path / "model", source, eos_token="<|end|>"), "smollm")[:2])


def test_all_names_of_splits_are_in_the_documentation_and_in_the_refusal_of_others(tmp_path: Path) -> None:
    docs = " ".join((Path(__file__).parents[3] / "docs/models.md").read_text().split())
    *names, last = SPLITS
    assert f"`tokenizer.ggml.pre` must be one of {', '.join(names)} and {last};" in docs
    with pytest.raises(ConfigError, match=f"must be one of {', '.join(SPLITS)}"):
        both(with_tokenizer(tmp_path / "model", byte_level_source()), "unheard-of")


WORDS = {  # tokenizer.ggml.pre -> the words of TEXT
    "gpt-4o": ["Hello", "World'S", " don't", "123", "456", "...\n/", "東京", " a", "/b", " ", " c"],
    "deepseek-v3": ["HelloWorld", "'S", " don", "'t", "123", "456", "...\n", "/", "東京", " a", "/b", " ", " c"],
}


@pytest.mark.parametrize("pre", ["gpt-4o", "deepseek-v3"])
def test_words_of_newer_tokenizers(tmp_path: Path, pre: str) -> None:
    folder = with_tokenizer(tmp_path / "model", byte_level_source())
    _, found, _ = both(folder, pre)
    text = "HelloWorld'S don't123456...\n/東京 a/b  c"
    seen = [text[start:end] for _, (start, end) in found._source.pre_tokenizer.pre_tokenize_str(text)]
    assert seen == WORDS[pre]


def test_pieces_with_a_space_before_the_text(tmp_path: Path) -> None:
    folder = with_tokenizer(tmp_path / "model", pieces_source(), bos_token="<s>", eos_token="</s>")
    wanted, found, _ = both(folder)
    check(wanted, found)
    assert found.encode("the")[0] == 1 and found.eos_ids >= {2}


GEMMA = dict(bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", tokenizer_class="GemmaTokenizer")
PARTS = ["▁", " ", "\n", "the", "fox", "a", "é", "東", "<start_of_turn>"]
SPACED = st.lists(st.sampled_from(PARTS), max_size=24).map("".join)
LITERAL = ["▁the", "a▁b", "▁", "▁▁", "  ", "a   ▁ b", "▁" * 14, " " * 14, "the▁▁ ▁fox", "\n\n\n▁", "  the", "▁▁the"]


@pytest.fixture(scope="module")
def gemmas(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Tokenizer]]:
    """That of transformers, and ours of the same folder and of its file."""
    from transformers import AutoTokenizer

    folder = with_tokenizer(tmp_path_factory.mktemp("gemma") / "model", gemma_source(), **GEMMA)
    write_files(write_gguf(folder, folder / "model.gguf"), folder / "made")
    return AutoTokenizer.from_pretrained(folder), [Tokenizer.from_folder(each) for each in (folder, folder / "made")]


def check_by_oracle(oracle: Any, ours: list[Tokenizer], text: str) -> None:
    for special in (True, False):
        ids = oracle.encode(text, add_special_tokens=special)
        assert [each.encode(text, special) for each in ours] == [ids] * 2
        assert [each.decode(ids, special) for each in ours] == [oracle.decode(ids, skip_special_tokens=special)] * 2


@pytest.mark.parametrize("text", LITERAL)
def test_a_literal_mark_of_spaces_is_read_and_shown_as_by_transformers(
    gemmas: tuple[Any, list[Tokenizer]], text: str
) -> None:
    check_by_oracle(*gemmas, text)


@examples(100, 3000)
@given(SPACED)
def test_runs_of_spaces_and_marks_are_those_of_transformers(gemmas: tuple[Any, list[Tokenizer]], text: str) -> None:
    check_by_oracle(*gemmas, text)


def test_a_tokenizer_of_another_kind_is_named(tmp_path: Path) -> None:
    folder = with_tokenizer(tmp_path / "model", byte_level_source())
    with pytest.raises(ConfigError, match=r"tokenizer\.ggml\.pre is 'chameleon', must be one of default, gpt-2"):
        both(folder, "chameleon")
    file = folder / "model.gguf"
    args = resolve(make_args(model_path=str(file), tokenizer_path=str(folder)))
    assert args.tokenizer_folder == folder
