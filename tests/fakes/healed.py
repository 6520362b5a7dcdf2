"""Healed prompts by trying everything: the tail, and all sequences that begin with it, from the vocabulary alone.

And a tiny model whose 320 tokens overlap as much as they can: nearly every text has many spellings.
"""

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer as Source
from tokenizers import decoders, models, pre_tokenizers, trainers

from ramet.runtime.text.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from tiny_model import SPECIAL_TOKENS, make_tiny

SIZE = 320
LETTERS = ["a", "b", "ab", "ba", " ", "é", "日", "本", "日本", "\n", "😀", "aé"]
Path_ = tuple[int, ...]


def make_model(folder: Path, **shape: int) -> Path:
    make_tiny(folder, **{"vocab": SIZE, "context": 256, "hidden": 64, "layers": 2, **shape})
    draw = random.Random(5)
    source = Source(models.BPE())
    source.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    source.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - 1,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=6,
        show_progress=False,
    )
    source.train_from_iterator(["".join(draw.choices(LETTERS, k=12)) for _ in range(3000)], trainer)
    source.add_tokens(["<tool>"])
    assert source.get_vocab_size() == SIZE
    source.save(str(folder / "tokenizer.json"))
    return folder


def text_of(draw: random.Random, longest: int = 9) -> str:
    return "".join(draw.choices(LETTERS, k=draw.randint(1, longest)))


class Everything:
    """`tokens`: the bytes of each ordinary token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = set(tokenizer.added_tokens.values()) | tokenizer.special_ids | tokenizer.eos_ids
        spelled = {token: tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)}
        self.tokens = {token: text for token, text in spelled.items() if text and token not in added}

    def tail(self, ids: list[int], most: int) -> tuple[list[int], bytes]:
        """From the earliest token in which some longer token, that crosses the prompt's end, could begin."""
        found = len(ids)
        for first in range(len(ids) - 1, max(0, len(ids) - most - 1), -1):
            if ids[first] not in self.tokens:
                break
            end = b"".join(self.tokens[token] for token in ids[first + 1 :])
            own = self.tokens[ids[first]]
            ends = [own[at:] + end for at in range(len(own))]
            if any(other.startswith(each) and other != each for each in ends for other in self.tokens.values()):
                found = first
        return ids[:found], b"".join(self.tokens[token] for token in ids[found:])

    def following(self, rest: bytes) -> Iterator[tuple[int, bool]]:
        """Each token that may come where `rest` of the tail is left, and whether it covers it."""
        for token, text in self.tokens.items():
            if text.startswith(rest):
                yield token, True
            elif rest.startswith(text):
                yield token, False

    def sequences(
        self, tail: bytes, most: int, logprobs: Callable[[list[Path_]], list[torch.Tensor]]
    ) -> dict[Path_, float]:
        """The log-probability of every sequence of at most `most` tokens; logprobs of what follows each path [V]."""
        complete: dict[Path_, float] = {}
        level: dict[Path_, tuple[int, float]] = {(): (0, 0.0)}  # bytes, log-probability
        for _ in range(most):
            following: dict[Path_, tuple[int, float]] = {}
            for (path, (offset, value)), row in zip(level.items(), logprobs(list(level)) if level else [], strict=True):
                for token, covers in self.following(tail[offset:]):
                    if covers:
                        complete[*path, token] = value + float(row[token])
                    else:
                        following[*path, token] = offset + len(self.tokens[token]), value + float(row[token])
            level = following
        return complete

    def first_of(self, output: list[int], tail: bytes) -> Path_:
        """The tokens of an output up to the one that covers the tail."""
        length = 0
        for num, token in enumerate(output, 1):
            length += len(self.tokens[token])
            if length >= len(tail):
                return tuple(output[:num])
        raise AssertionError(f"{output} does not reach the end of {tail!r}")


def load_hf(folder: Path) -> Callable[[list[list[int]]], list[torch.Tensor]]:
    """Logits [V] after each of some sequences of equal length, by transformers in float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(sequences: list[list[int]]) -> list[torch.Tensor]:
        parts = [sequences[i : i + 256] for i in range(0, len(sequences), 256)]
        return [row for part in parts for row in model(torch.tensor(part)).logits[:, -1].double()]

    return logits
