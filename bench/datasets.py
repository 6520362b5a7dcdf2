"""Prompts for a load, made here and by seed: no download. Decides lengths and contents, not when they are sent.

`random` is text whose token count, special tokens included, is the asked one by the tokenizer given: words that are one
token each where the vocabulary has them, checked and mended by encoding. Lengths are uniform in
[max(1, int(len * range_ratio)), len], input and output drawn separately.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from ramet.bench.errors import BadOption

MIN_WORDS = 64  # below this a vocabulary counts as having no words of its own
MAX_PROMPT, MAX_TOTAL = 1024, 2048  # longer conversations are left out, as the field does
MIN_TOKENS = 4


@dataclass(frozen=True)
class DatasetPrompt:
    """Exactly one of text and ids is set. Lengths in tokens."""

    input_len: int
    output_len: int
    text: str | None = None
    ids: tuple[int, ...] | None = None


class DatasetVocabulary:
    """A tokenizer.json, and how to write text of a given number of tokens with it."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json" if folder.is_dir() else folder
        if not path.is_file():
            raise BadOption(f"--tokenizer {folder} has no tokenizer.json: give a folder or file of this machine")
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.added = len(self._tokenizer.encode("").ids)  # special tokens around every text

    @cached_property
    def ids(self) -> list[int]:
        """Every id but the special ones."""
        special = {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        return [i for i in sorted(self._tokenizer.get_vocab(with_added_tokens=True).values()) if i not in special]

    @cached_property
    def words(self) -> list[int]:
        """Ids of words that are one token wherever they stand; every id where there are too few such words."""
        named = [(i, self._tokenizer.id_to_token(i) or "") for i in self.ids]
        plain = [(i, t[1:]) for i, t in named if t[:1] in ("Ġ", "▁") and t[1:].isascii() and t[1:].isalpha()]
        encoded = self._tokenizer.encode_batch([f"a {word} {word}" for _, word in plain], add_special_tokens=False)
        sure = [i for (i, _), e in zip(plain, encoded) if e.ids[-2:] == [i, i]]
        return sure if len(sure) >= MIN_WORDS else self.ids

    def count(self, texts: Sequence[str], special: bool = True) -> list[int]:
        return [len(e.ids) for e in self._tokenizer.encode_batch(list(texts), add_special_tokens=special)]

    def text(self, draw: random.Random, length: int, special: bool = True) -> tuple[str, int]:
        """Random text of `length` tokens, and its true count where the tokenizer cannot be brought to that."""
        wanted = max(length, self.added + 1) if special else length
        ids = draw.choices(self.words, k=wanted - self.added if special else wanted)
        text, count = "", 0
        for _ in range(8):
            text = self._tokenizer.decode(ids)
            count = self.count([text], special)[0]
            if count == wanted:
                break
            ids = ids[: wanted - count] if count > wanted else ids + draw.choices(self.words, k=wanted - count)
            ids = ids or draw.choices(self.words, k=1)
        return text, count


def lengths(draw: random.Random, num: int, longest: int, range_ratio: float) -> list[int]:
    return [draw.randint(max(1, int(longest * range_ratio)), longest) for _ in range(num)]


def random_text(
    vocabulary: DatasetVocabulary, num: int, input_len: int, output_len: int, range_ratio: float, seed: int
) -> list[DatasetPrompt]:
    draw = random.Random(seed)
    pairs = zip(lengths(draw, num, input_len, range_ratio), lengths(draw, num, output_len, range_ratio))
    made = [(*vocabulary.text(draw, length), out) for length, out in pairs]
    return [DatasetPrompt(count, out, text=text) for text, count, out in made]


def random_ids(
    vocabulary: DatasetVocabulary, num: int, input_len: int, output_len: int, range_ratio: float, seed: int
) -> list[DatasetPrompt]:
    draw = random.Random(seed)
    pairs = zip(lengths(draw, num, input_len, range_ratio), lengths(draw, num, output_len, range_ratio))
    return [DatasetPrompt(length, out, ids=tuple(draw.choices(vocabulary.ids, k=length))) for length, out in pairs]


def shared_prefix(
    vocabulary: DatasetVocabulary,
    groups: int,
    per_group: int,
    system_len: int,
    question_len: int,
    output_len: int,
    seed: int,
) -> list[DatasetPrompt]:
    """`groups` system prompts with `per_group` questions each, in random order."""
    draw = random.Random(seed)
    texts: list[str] = []
    for _ in range(groups):
        system, _count = vocabulary.text(draw, system_len)
        for _ in range(per_group):
            question, _count = vocabulary.text(draw, question_len, special=False)
            texts.append(f"{system}\n\n{question}")
    draw.shuffle(texts)
    return [DatasetPrompt(count, output_len, text=text) for text, count in zip(texts, vocabulary.count(texts))]


def sharegpt_file(vocabulary: DatasetVocabulary, path: Path, num: int, seed: int) -> list[DatasetPrompt]:
    """The first two turns of `num` conversations: one is the prompt, the other says how long the answer is."""
    turns = _conversations(path)
    random.Random(seed).shuffle(turns)
    chosen: list[DatasetPrompt] = []
    for prompt, answer in turns:
        asked, answered = vocabulary.count([prompt])[0], vocabulary.count([answer], special=False)[0]
        if min(asked, answered) >= MIN_TOKENS and asked <= MAX_PROMPT and asked + answered <= MAX_TOTAL:
            chosen.append(DatasetPrompt(asked, answered, text=prompt))
        if len(chosen) == num:
            return chosen
    raise BadOption(f"--dataset-path {path} has {len(chosen)} usable conversations, --num-prompts asks for {num}")


def _conversations(path: Path) -> list[tuple[str, str]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadOption(f"--dataset-path {path} cannot be read: {error}") from None
    try:
        talks = [item.get("conversations") or item.get("conversation") or [] for item in content]
        return [(talk[0]["value"], talk[1]["value"]) for talk in talks if len(talk) >= 2]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadOption(
            f"--dataset-path {path} must be a list of objects with conversations: [{{value}}, ...]: {error!r}"
        ) from None
