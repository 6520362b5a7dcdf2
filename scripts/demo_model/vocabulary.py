"""The demo model's tokenizer: byte-level BPE over the corpus, every digit its own token.

Decides the special tokens and their ids, how text is split before merging, and what its two files say. Knows
the corpus only as an iterator of texts. No beginning-of-text token: a document starts at position 0, so nothing can be
added twice; <|endoftext|> ends plain text, <|im_end|> ends a chat turn, and generation stops at either.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from scripts.demo_model.corpus.chat_format import CHAT_TEMPLATE

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")  # special: never shown as text
END_OF_TEXT, _, END_OF_TURN, PAD = range(4)
# Not special: tool and reasoning parsers must see them in the text.
VISIBLE_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
STOP_IDS = [END_OF_TEXT, END_OF_TURN]


def train_tokenizer(
    texts: Iterable[str], vocab: int, control: Sequence[str] = CONTROL_TOKENS, visible: Sequence[str] = VISIBLE_TOKENS
) -> Tokenizer:
    """Exactly `vocab` entries, or ValueError when the texts are too few for so many."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    split_digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split_digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(text, special=True, normalized=False) for text in (*control, *visible)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f"the texts gave {tokenizer.get_vocab_size()} entries, {vocab} are asked for: give more text")
    return _with_visible_tokens(tokenizer, control)


def _with_visible_tokens(tokenizer: Tokenizer, control: Sequence[str]) -> Tokenizer:
    """The same, with VISIBLE_TOKENS kept where special tokens are skipped: the trainer makes all of them special."""
    description = json.loads(tokenizer.to_str())
    for token in description["added_tokens"]:
        token["special"] = token["content"] in control
    return Tokenizer.from_str(json.dumps(description))


def write_tokenizer(
    tokenizer: Tokenizer, folder: Path, context: int, template: str = CHAT_TEMPLATE, temperature: float = 0.3
) -> None:
    """tokenizer.json, tokenizer_config.json and generation_config.json."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": CONTROL_TOKENS[END_OF_TURN],
        "pad_token": CONTROL_TOKENS[PAD],
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        "chat_template": template,
    }
    write_json(folder / "tokenizer_config.json", settings)
    # Facts come out right, stories still differ.
    sampling = {"do_sample": True, "temperature": temperature, "top_p": 0.9}
    generation = {"eos_token_id": STOP_IDS, "pad_token_id": PAD, **sampling}
    write_json(folder / "generation_config.json", generation)


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
