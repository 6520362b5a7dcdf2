"""The seeded checkpoints: same arguments, same bytes; transformers reads them."""

from pathlib import Path

import pytest
from tiny_model import CHAT_TEMPLATE, SPECIAL_TOKENS, make_tiny


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_same_arguments_are_the_same_bytes(tmp_path: Path) -> None:
    assert contents(make_tiny(tmp_path / "a")) == contents(make_tiny(tmp_path / "b"))


def test_another_seed_is_another_model(tmp_path: Path) -> None:
    one, other = contents(make_tiny(tmp_path / "a", seed=1)), contents(make_tiny(tmp_path / "b", seed=2))
    assert one["model.safetensors"] != other["model.safetensors"] and one["tokenizer.json"] != other["tokenizer.json"]
    assert one["config.json"] == other["config.json"]


def test_transformers_reads_the_folder_and_its_tokenizer_keeps_every_byte(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(make_tiny(tmp_path))
    text = "Naïve 東京 😀\n\t\x00 {}" + "".join(map(chr, range(256)))
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(len(SPECIAL_TOKENS)))
    turn = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert turn == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.chat_template == CHAT_TEMPLATE


def test_greedy_output_is_not_degenerate(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(make_tiny(tmp_path))
    with torch.inference_mode():
        out = model.generate(torch.tensor([[7, 8, 9]]), max_new_tokens=40, do_sample=False, eos_token_id=-1)
    assert len(set(out[0, 3:].tolist())) > 10


def test_a_vocabulary_too_small_for_every_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="do not fit"):
        make_tiny(tmp_path, vocab=200)
