"""A language without meaning: every token is one word with its space, so a length in words is a length in tokens.

32,000 tokens: the printable characters of ASCII one by one (grammars spell with them), the end of an output, and words
of six letters. A text is cut into words and single characters by rule alone, whatever stands beside them, so text ->
ids -> text -> ids comes back to the same ids: what a model wrote is found again in the cache when a program sends it
on. (A blank and six characters drawn one after the other could spell a word: of any seven tokens of an output that is
one in 10^18.) Nothing but the end has another form than its text, and an output may contain it: it is no special token.
"""

import json
import random
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from ramet.bench.loads import SHAPE
from ramet.bench.vocabulary import ALPHABET

VOCABULARY = 32000
CHARACTERS = ["\n", "\t", *map(chr, range(32, 127))]
END = "<end>"
END_ID = len(CHARACTERS)
FIRST_WORD = END_ID + 1
CONTEXT = 16384  # tokens: the longest document of the paper's workloads has 10,000
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"


@cache
def words() -> tuple[str, ...]:
    """Each with its space; word i is token FIRST_WORD + i."""
    syllables = ["".join(pair) for pair in product(CONSONANTS, VOWELS)]
    numbers = random.Random(0).sample(range(len(syllables) ** 3), k=VOCABULARY - FIRST_WORD)
    num = len(syllables)
    return tuple(f" {syllables[n // num // num]}{syllables[n // num % num]}{syllables[n % num]}" for n in numbers)


def text(draw: random.Random, num_tokens: int) -> str:
    return "".join(draw.choices(words(), k=num_tokens))


def length(words: str) -> int:
    """Tokens of a text of words."""
    return words.count(" ")


def tokenizer_json() -> dict[str, Any]:
    pieces = [*CHARACTERS, END, *words()]
    end = {"id": END_ID, "content": END, "special": False, "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False}  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    spelled = ["".join(ALPHABET[byte] for byte in piece.encode()) for piece in pieces]
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [end],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": " [a-z]{6}|[\\s\\S]"}, "behavior": "Isolated", "invert": False},
            byte_level]},
        "decoder": byte_level,
        # there are no merges: a piece that is no word of ours becomes its characters
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                  "vocab": {piece: i for i, piece in enumerate(spelled)}, "merges": []},
    }  # fmt: skip


def write_model(folder: Path, **shape: Any) -> None:
    """A folder for `--load-format dummy`: the tokenizer, and config.json of the 160M class but for `shape`."""
    ends = {"bos_token_id": None, "eos_token_id": END_ID, "max_position_embeddings": CONTEXT}
    (folder / "config.json").write_text(json.dumps({**SHAPE, "vocab_size": VOCABULARY, **ends, **shape}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
