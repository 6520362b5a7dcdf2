"""Documents into rows of token ids with weights: what one training step sees.

Decides how documents are encoded, weighted and packed. A step's batch is a pure function of (seed, step), so a run that
was cut off resumes with the same data. Knows the mix only as a function that makes one document, and no optimizer.
B rows, T tokens a row.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer

from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.vocabulary import END_OF_TEXT, PAD

GIVEN_WEIGHT = 0.1  # what nobody could predict teaches less than what can be worked out
FILL = 1.04  # tokens made for a row over its length: the packer needs a choice, what does not fit is left out


@dataclass(frozen=True)
class Batch:
    """tokens, targets int64, weights float32, documents int64, each [B, T]; documents numbers those of a row from 1."""

    tokens: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    documents: torch.Tensor


@dataclass(frozen=True)
class Encoded:
    """One document: ids with <|endoftext|> at the end, and the weight of each id as a target."""

    family: str
    ids: list[int]
    weights: list[float]
    answer: int  # index of the first id of the last produced part


def encode(tokenizer: Tokenizer, documents: list[Document]) -> list[Encoded]:
    """Part by part, as a client's prompt is encoded without its answer."""
    parts = [part for document in documents for part in document.parts]
    encodings = iter(tokenizer.encode_batch_fast(parts, add_special_tokens=False))
    encoded = []
    for document in documents:
        ids: list[int] = []
        weights: list[float] = []
        answer = 0
        for place in range(len(document.parts)):
            part = next(encodings).ids
            if place % 2:
                answer = len(ids)
            ids += part
            weights += [document.emphasis if place % 2 else GIVEN_WEIGHT] * len(part)
        encoded.append(Encoded(document.family, [*ids, END_OF_TEXT], [*weights, 1.0], answer))
    return encoded


def pack(encoded: list[Encoded], rows: int, length: int) -> Batch:
    """In order, each into the first row with room; a document that fits nowhere is left out, never cut.

    Longest first would fill better, but leave out the short families.
    """
    places = _place(encoded, rows, length)
    tokens = np.full((rows, length), PAD, dtype=np.int64)
    targets = np.full((rows, length), PAD, dtype=np.int64)
    weights = np.zeros((rows, length), dtype=np.float32)
    numbers = np.zeros((rows, length), dtype=np.int64)
    for row, members in enumerate(places):
        at = 0
        for number, one in enumerate(members, 1):
            end = at + len(one.ids)
            tokens[row, at:end] = one.ids
            targets[row, at : end - 1] = one.ids[1:]
            weights[row, at : end - 1] = one.weights[1:]
            numbers[row, at:end] = number
            at = end
    return Batch(*map(torch.from_numpy, (tokens, targets, weights, numbers)))


def _place(encoded: list[Encoded], rows: int, length: int) -> list[list[Encoded]]:
    places: list[list[Encoded]] = [[] for _ in range(rows)]
    room = [length] * rows
    for one in encoded:
        row = next((row for row in range(rows) if room[row] >= len(one.ids)), None)
        if row is not None:
            places[row].append(one)
            room[row] -= len(one.ids)
    return places


def make_batch(
    tokenizer: Tokenizer, make: Callable[[Draw], Document], seed: int, step: int, rows: int, length: int
) -> Batch:
    """The batch of one step: new documents, none of them ever seen again but by chance."""
    draw = Draw(f"{seed}/{step}")
    encoded: list[Encoded] = []
    total = 0
    while total < rows * length * FILL:
        some = encode(tokenizer, [make(draw) for _ in range(32)])
        encoded += some
        total += sum(min(len(one.ids), length) for one in some)
    return pack(encoded, rows, length)
