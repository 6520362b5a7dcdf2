"""A byte-level BPE tokenizer of any size, made up from a seed: as many tokens as a real model's, and no download.

Half its tokens are words of syllables with a blank before them; the others are words without it, capitalised ones,
words of other scripts, numbers, blanks, marks, and the pieces of JSON. The merges spell a word, and nearly each
beginning of one, as one token.
"""

import json
import random
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from ramet.bench.errors import BadOption

END = "<|end|>"
SPECIAL = (END, "<|begin|>", "<|pad|>", "<|tool|>")
MIN_SIZE = 512  # all bytes, and the pieces of JSON
PLAIN = (*range(33, 127), *range(161, 173), *range(174, 256))  # bytes that a byte-level alphabet leaves as they are
OTHER = [byte for byte in range(256) if byte not in PLAIN]
ALPHABET = {byte: chr(byte) for byte in PLAIN} | {byte: chr(256 + i) for i, byte in enumerate(OTHER)}
JSON_PIECES = [
    "\":", "{\"", "\"}", "\",", "\"},", "\"]", "[\"", "[{", "}]", "},", "}}", "{}", "[]", "\"\"", "\":{\"",
    "\":[\"", "\":\"", "\",\"", ":", ",", "[", "]", "}]}", "]}", "],", "':", "',", "..", "...", "()", "();",
    "->", "=>", "==", "//", "/*", "*/", "::", "--",
]  # fmt: skip
WORDS = [
    "the", "of", "and", "to", "in", "is", "for", "that", "with", "as", "on", "name", "city", "country",
    "population", "latitude", "top", "true", "false", "null", "id", "order", "items", "price", "status",
    "address", "street", "date", "email", "type", "value", "total", "quantity", "customer", "length", "house",
    "occupation", "alive",
]  # fmt: skip
ONSETS = [
    "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "br", "ch", "cl",
    "cr", "dr", "fl", "gr", "pl", "pr", "sh", "sl", "st", "str", "th", "tr", "wh",
]  # fmt: skip
VOWELS = [
    "a", "e", "i", "o", "u", "ai", "au", "ea", "ee", "ie", "io", "oo", "ou", "y",
]  # fmt: skip
CODAS = ("", "", "", "l", "m", "n", "r", "s", "t", "ck", "ng", "nt", "rd", "st", "th")
SCRIPTS = [  # the characters of a script, and how many a word has
    ([chr(code) for code in range(ord(first), ord(last) + 1, step)], least, most)
    for first, last, step, least, most in (
        ("а", "я", 1, 2, 8), ("α", "ω", 1, 2, 7), ("à", "ÿ", 1, 1, 4), ("あ", "ん", 1, 1, 4), ("一", "龥", 7, 1, 3),
        ("가", "힣", 7, 1, 3), ("ا", "ي", 1, 2, 6),
    )
]  # fmt: skip
MARKS = "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~"


class _Merges:
    """The vocabulary as it grows. A word that is added is one token from then on."""

    def __init__(self) -> None:
        self.ids = {ALPHABET[byte]: byte for byte in range(256)}
        self.ranks: dict[tuple[str, str], int] = {}

    def add(self, word: str) -> None:
        pieces = self._pieces("".join(ALPHABET[byte] for byte in word.encode()))
        while len(pieces) > 1:
            left, right, *rest = pieces
            if left + right not in self.ids:  # the same text may be a token that other merges make
                self.ids[left + right] = len(self.ids)
            self.ranks[left, right] = len(self.ranks)
            pieces = [left + right, *rest]

    def _pieces(self, spelled: str) -> list[str]:
        """What the merges so far make of a word."""
        pieces, never = list(spelled), len(self.ranks)
        while len(pieces) > 1:
            rank, at = min((self.ranks.get(pair, never), i) for i, pair in enumerate(pairwise(pieces)))
            if rank == never:
                break
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return pieces


def tokenizer_json(size: int, seed: int = 0) -> dict[str, Any]:
    """A tokenizer.json of `size` tokens, the last of them special."""
    if size < MIN_SIZE:
        raise BadOption(f"a vocabulary of {size} tokens is too small, must be at least {MIN_SIZE}")
    merges, num_texts = _Merges(), size - len(SPECIAL)
    for word in _words(random.Random(seed)):
        merges.add(word)
        if len(merges.ids) >= num_texts:
            break
    vocab = {text: at for text, at in merges.ids.items() if at < num_texts}
    kept = [pair for pair in merges.ranks if "".join(pair) in vocab]
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": num_texts + i, "content": text, **flags} for i, text in enumerate(SPECIAL)],
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                  "merges": [list(pair) for pair in kept]},
    }  # fmt: skip


def end_id(size: int) -> int:
    """What ends an output, in a vocabulary of that size."""
    return size - len(SPECIAL) + SPECIAL.index(END)


def write(folder: Path, size: int, seed: int = 0) -> None:
    """tokenizer.json, and beside it what ends an output."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(size, seed), ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))


def _words(draw: random.Random) -> Iterator[str]:
    """What becomes a token, the most frequent first; without an end."""
    yield from JSON_PIECES
    yield from (' "', ' {"', ' ["', " {", " [", " ]", " }", "  ", "    ", "        ", "\n", "\n\n", "\n    ")
    yield from (blank + word for word in WORDS for blank in (" ", ""))
    syllables = [onset + vowel for onset in ONSETS for vowel in VOWELS]
    yield from draw.sample(syllables, k=200)
    numbers = ["".join(digits) for digits in _digits()]
    for number in count():
        if number < len(numbers):
            yield numbers[number]
        if number == 200:
            yield from (" " * width for width in range(3, 65))
        if draw.random() < 0.17:
            yield from _foreign_word(draw)
        else:
            yield _word(draw, syllables)


def _foreign_word(draw: random.Random) -> Iterator[str]:
    """Its characters come first: texts hold them far more often than a piece of one beside another character."""
    characters, least, most = draw.choice(SCRIPTS)
    word = "".join(draw.choices(characters, k=draw.randint(least, most)))
    yield from word
    yield (" " if draw.random() < 0.4 else "") + word


def _digits() -> Iterator[tuple[str, ...]]:
    for width in (2, 3):
        for value in range(10**width):
            yield tuple(f"{value:0{width}}")


def _word(draw: random.Random, syllables: list[str]) -> str:
    kind = draw.random()
    if kind < 0.04:
        return "".join(draw.choices(MARKS, k=draw.randint(2, 4)))
    word = "".join(draw.choice(syllables) + draw.choice(CODAS) for _ in range(draw.choice((1, 1, 2, 2, 2, 3))))
    if kind < 0.24:
        word = word.capitalize()
    elif kind < 0.28:
        word = word.upper()
    return (" " if draw.random() < 0.65 else "") + word
