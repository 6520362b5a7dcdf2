"""Train the model of pictures: from seed to a Hugging Face folder, with a log of every figure.

Decides the schedule; run.py has the loop. First the tower learns what patches show, which needs no text; then it stays
as it is, and the rest learns to answer. At the rate that the rest needs, a tower that learns on forgets shapes.
Each phase has a warm-up and falls to a low rate. Knows no kind of question.

    python -m scripts.demo_model train-vision FOLDER --work WORK        starts, or goes on from WORK
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.pictures.batches import (
    CHAT,
    IMAGE,
    PLAIN,
    Packer,
    as_numbers,
    blind_document,
    image_token_of,
    make_batch,
    make_pictures,
    written,
)
from scripts.demo_model.pictures.folder import CHAT_TEMPLATE, write_processor
from scripts.demo_model.pictures.network import PictureNetwork, PictureShape
from scripts.demo_model.pictures.questions import questions
from scripts.demo_model.pictures.scenes import COLOURS, SHAPES, draw_scene
from scripts.demo_model.run import TrainingRun, check_positive
from scripts.demo_model.vocabulary import CONTROL_TOKENS, PAD, STOP_IDS, train_tokenizer, write_tokenizer


@dataclass(frozen=True)
class PicturePlan:
    """Everything that a run depends on; the defaults made the bundled model."""

    seed: int = 1
    first_steps: int = 600
    first_rows: int = 64
    second_steps: int = 600
    second_rows: int = 32
    length: int = 192
    warm_up: int = 40
    decay: float = 0.4  # the last part of each phase: rates fall
    first_end: float = 0.05  # the first phase's last rate
    matrix_rate: float = 6e-3
    vector_rate: float = 4e-3
    weight_decay: float = 0.05
    clip: float = 1.0
    tokenizer_pictures: int = 1500
    whitening_pictures: int = 400
    log_every: int = 25
    measure_every: int = 100
    measure_rows: int = 48
    save_every: int = 100

    def __post_init__(self) -> None:
        """ValueError names a field that no run could have."""
        check_positive(self, ("seed", "first_steps", "second_steps", "weight_decay"), ("decay", "first_end"))

    @property
    def steps(self) -> int:
        return self.first_steps + self.second_steps

    def rate(self, step: int) -> float:
        """Factor on both learning rates."""
        if step < self.first_steps:
            falling = (self.first_steps - step) / (self.decay * self.first_steps)
            return min(1.0, (step + 1) / self.warm_up, max(self.first_end, falling))
        since = step - self.first_steps
        falling = (self.second_steps - since) / (self.decay * self.second_steps)
        return min(1.0, self.first_end + (since + 1) / self.warm_up, falling)


class PictureRun(TrainingRun):
    plan: PicturePlan
    shape: PictureShape
    network: PictureNetwork

    def make_tokenizer(self) -> Tokenizer:
        draw = Draw(f"{self.plan.seed}/tokenizer")

        def texts() -> Any:
            for _ in range(self.plan.tokenizer_pictures):
                scene = draw_scene(draw)
                for asked in islice(questions(draw, scene), 8):
                    yield from (written(asked, form, first=True).text for form in (PLAIN, CHAT))
                yield blind_document(draw, scene).text

        return train_tokenizer(texts(), self.shape.text.vocab, (*CONTROL_TOKENS, IMAGE), ())

    def make_network(self) -> PictureNetwork:
        return PictureNetwork(self.shape, image_token_of(self.tokenizer), len(SHAPES), len(COLOURS))

    def begin(self) -> None:
        draw = Draw(f"{self.plan.seed}/whitening")
        self.network.whiten(as_numbers(make_pictures(draw, self.shape.tower, self.plan.whitening_pictures)[0]))

    def losses(self, forward: Callable[..., Any]) -> tuple[dict[str, torch.Tensor], int]:
        tower, draw = self.shape.tower, Draw(f"{self.plan.seed}/{self.step}")
        if self.step < self.plan.first_steps:
            pixels, shown = make_pictures(draw, tower, self.plan.first_rows)
            seen = self.network.patches(as_numbers(pixels))
            return {"patches": self.network.patch_loss(seen, shown)}, shown.shapes.numel()
        batch = make_batch(self.tokenizer, tower, draw, self.plan.second_rows, self.plan.length)
        with torch.no_grad():
            seen = self.network.patches(as_numbers(batch.pixels))
        answers = forward(seen, *batch.given, batch.targets, batch.weights)
        return {"answers": answers}, int((batch.documents >= 0).sum())

    @torch.no_grad()
    def measure(self) -> None:
        """Of held-out things in held-out wordings, kind by kind: answers that are right in every token."""
        found: dict[str, list[bool]] = defaultdict(list)
        patches: dict[str, list[torch.Tensor]] = defaultdict(list)
        draw = Draw(f"{self.plan.seed}/measure", held_out=True)
        for _ in range(self.plan.measure_rows // 16):
            packer = Packer(self.tokenizer, self.shape.tower, 16, self.plan.length)
            for row in range(16):
                packer.add(row, draw)
            batch = packer.batch()
            seen = self.network.patches(as_numbers(batch.pixels))
            there = batch.shown.shapes > 0
            for name, head, wanted in (
                ("shapes", self.network.shape_head, batch.shown.shapes),
                ("colours", self.network.colour_head, batch.shown.colours),
            ):
                patches[name].append((head(seen).argmax(-1) == wanted)[there].float())
            hidden = self.network.hidden(seen, *batch.given)
            right = (self.network.logits(hidden).argmax(-1) == batch.targets) | (batch.weights == 0)
            for place in packer.places:
                found[place.kind].append(bool(right[place.row, place.first : place.end].all()))
        shares = {name: torch.cat(each).mean().item() for name, each in patches.items()}
        self.log("held-out patches of things: " + ", ".join(f"{name} {each:.1%}" for name, each in shares.items()))
        self.log("held out: " + ", ".join(f"{kind} {sum(each)}/{len(each)}" for kind, each in sorted(found.items())))

    def export(self, folder: Path) -> None:
        model = self.network.checkpoint(eos_token_id=STOP_IDS, pad_token_id=PAD)
        model.save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)  # written for its owner alone
        write_tokenizer(self.tokenizer, folder, self.shape.text.context, CHAT_TEMPLATE)
        write_processor(folder, self.shape.tower.image, self.shape.tower.patch)
