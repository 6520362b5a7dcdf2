"""Scenes and questions into rows: what one step of training sees.

A row is a picture with as many questions about it as fit. They do not see each other, so each is learnt as the first
one of a chat; in some rows they are one chat and see what was said before. Some rows begin with a question that sees no
picture. Knows no optimizer.
B rows, T tokens a row, S pixels a side, P patches.
"""

from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from scripts.demo_model.batches import Encoded, encode
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.pictures.drawing import owners, paint, small
from scripts.demo_model.pictures.network import Patches, Tower
from scripts.demo_model.pictures.questions import NO_PICTURE, Asked, ask, questions
from scripts.demo_model.pictures.scenes import COLOURS, SHAPES, Scene, draw_scene
from scripts.demo_model.vocabulary import PAD

IMAGE = "<image>"
TURN, REPLY = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
END = "<|im_end|>"
PLAIN, CHAT, LONG_CHAT = "plain", "chat", "long chat"
FORMS = (PLAIN, CHAT, CHAT, CHAT, LONG_CHAT)
EMPHASIS = 2.0
MAX_QUESTIONS = 12
BLIND_SHARE = 0.2  # of rows
BLIND_KINDS = ("greeting", "colour.only", "shape.only", "describe", "count")
Picture = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # pixels, and what its patches show
_COLOUR_NAMES = tuple(COLOURS)


@dataclass(frozen=True)
class PictureBatch:
    """pixels uint8 [B, S, S, 3]; tokens, positions, documents, targets int64, weights float32 [B, T].

    documents numbers a row's questions from 1, 0: the picture, -1: padding.
    """

    pixels: torch.Tensor
    tokens: torch.Tensor
    positions: torch.Tensor
    documents: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    shown: Patches

    @property
    def given(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.tokens, self.positions, self.documents


def image_token_of(tokenizer: Tokenizer) -> int:
    token = tokenizer.token_to_id(IMAGE)
    assert token is not None, f"the tokenizer has no {IMAGE}"
    return token


class Place(NamedTuple):
    """Where a question lies in a batch."""

    kind: str
    row: int
    first: int
    end: int


def written(asked: Asked, form: str, first: bool) -> Document:
    """What stands behind a picture: as the chat template writes it, or as plain text."""
    if form == PLAIN:
        given = f"\nQuestion: {asked.question}\nAnswer:", f" {asked.answer}"
    else:
        start = "" if first or form == CHAT else "\n" + TURN
        given = f"{start}{asked.question}{REPLY}", asked.answer + END
    return Document(asked.kind, given, emphasis=EMPHASIS)


def blind_document(draw: Draw, scene: Scene) -> Document:
    """A turn without a picture, though it may ask for what is in one."""
    asked = ask(draw, scene, draw.pick(BLIND_KINDS)) or ask(draw, scene, "greeting")
    assert asked is not None
    return Document("blind", (TURN + asked.question + REPLY, NO_PICTURE + END), emphasis=EMPHASIS)


def make_pictures(draw: Draw, tower: Tower, count: int) -> tuple[torch.Tensor, Patches]:
    """Pixels uint8 [count, S, S, 3], and what their patches show."""
    pictures = [_picture(draw_scene(draw), draw, tower) for _ in range(count)]
    pixels, *shown = (torch.from_numpy(np.stack(each)) for each in zip(*pictures, strict=True))
    return pixels, Patches(*shown)


def make_batch(tokenizer: Tokenizer, tower: Tower, draw: Draw, rows: int, length: int) -> PictureBatch:
    """New pictures, none of them ever seen again."""
    packer = Packer(tokenizer, tower, rows, length)
    for row in range(rows):
        packer.add(row, draw)
    return packer.batch()


class Packer:
    """Fills the rows of a batch one after the other. `places`: of its questions."""

    def __init__(self, tokenizer: Tokenizer, tower: Tower, rows: int, length: int) -> None:
        self.tokenizer, self.tower, self.length = tokenizer, tower, length
        self.image_token = image_token_of(tokenizer)
        self.turn = tokenizer.encode(TURN, add_special_tokens=False).ids
        self.pictures: list[Picture] = []
        self.tokens = np.full((rows, length), PAD, dtype=np.int64)
        self.targets = self.tokens.copy()
        self.positions = np.zeros((rows, length), dtype=np.int64)
        self.documents = np.full((rows, length), -1, dtype=np.int64)
        self.weights = np.zeros((rows, length), dtype=np.float32)
        self.places: list[Place] = []

    def add(self, row: int, draw: Draw) -> None:
        """A new picture with questions; rows come in order."""
        scene = draw_scene(draw)
        self.pictures.append(_picture(scene, draw, self.tower))
        form = draw.pick(FORMS)
        at = 0
        if draw.chance(BLIND_SHARE):
            (blind,) = encode(self.tokenizer, [blind_document(draw, scene)])
            at = self._put(row, 0, blind, len(blind.ids), 1, 0)
        prefix = ([] if form == PLAIN else self.turn) + [self.image_token] * self.tower.patches
        end = at + len(prefix)
        self.tokens[row, at:end], self.documents[row, at:end] = prefix, 0
        self.positions[row, at:end] = np.arange(len(prefix))
        asked = islice(questions(draw, scene), MAX_QUESTIONS)
        documents = [written(each, form, not number) for number, each in enumerate(asked)]
        position = len(prefix)
        for number, one in enumerate(encode(self.tokenizer, documents), 2):
            length = len(one.ids) - (form == LONG_CHAT)  # a chat goes on after a turn
            if end + length > self.length:
                break
            end = self._put(row, end, one, length, 2 if form == LONG_CHAT else number, position)
            position += length if form == LONG_CHAT else 0

    def _put(self, row: int, at: int, one: Encoded, length: int, number: int, position: int) -> int:
        end = at + length
        self.places.append(Place(one.family, row, at, end))
        self.tokens[row, at:end] = one.ids[:length]
        self.documents[row, at:end] = number
        self.positions[row, at:end] = np.arange(position, position + length)
        self.targets[row, at : end - 1] = one.ids[1:length]
        self.weights[row, at + one.answer - 1 : end - 1] = one.weights[one.answer : length]
        return end

    def batch(self) -> PictureBatch:
        pixels, *shown = (torch.from_numpy(np.stack(each)) for each in zip(*self.pictures, strict=True))
        return PictureBatch(
            pixels,
            torch.from_numpy(self.tokens),
            torch.from_numpy(self.positions),
            torch.from_numpy(self.documents),
            torch.from_numpy(self.targets),
            torch.from_numpy(self.weights),
            Patches(*shown),
        )


def as_numbers(pixels: torch.Tensor) -> torch.Tensor:
    """uint8 [B, S, S, 3] -> float32 [B, 3, S, S] from -1 to 1, as the processor makes them."""
    return pixels.permute(0, 3, 1, 2).float() / 127.5 - 1


def _picture(scene: Scene, draw: Draw, tower: Tower) -> Picture:
    pixels = np.asarray(small(paint(scene, draw), tower.image))
    shown, things = owners(scene, tower.side), scene.things
    shapes = np.array([0, *(1 + SHAPES.index(thing.shape) for thing in things)])[shown]
    colours = np.array([0, *(1 + _COLOUR_NAMES.index(thing.colour) for thing in things)])[shown]
    middles = [(0.0, 0.0), *((thing.x / scene.width, thing.y / scene.height) for thing in things)]
    return pixels, shapes, colours, np.array(middles, dtype=np.float32)[shown]
