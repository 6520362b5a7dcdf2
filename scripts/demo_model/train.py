"""Train the demo model: from seed to a Hugging Face folder, with a log of every figure.

Decides the schedule and the phases of row length; run.py has the loop. Knows no family of documents.
Rates: linear warm-up, constant, linear to zero over the last part; the last part's rows are longer, so that the context
is used to its end. A second, shorter phase starts at half the rate with another mix. A batch depends on (seed, step)
alone, so a run that was cut off goes on exactly.

    python -m scripts.demo_model train FOLDER --work WORK        starts, or goes on from WORK
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from scripts.demo_model.batches import Batch, make_batch
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.mix import FIRST, SECOND, make_document, make_long_document
from scripts.demo_model.measure import exact_matches
from scripts.demo_model.network import Network, Shape
from scripts.demo_model.run import TrainingRun, check_positive
from scripts.demo_model.vocabulary import STOP_IDS, train_tokenizer, write_json, write_tokenizer


@dataclass(frozen=True)
class Plan:
    """Everything that a run depends on; the defaults made the bundled model."""

    seed: int = 1
    first_steps: int = 9000
    second_steps: int = 3200
    rows: int = 8
    length: int = 512
    long_rows: int = 2
    long_length: int = 4096
    long_every: int = 5  # from that part on every such step sees long rows
    warm_up: int = 200
    decay: float = 0.3  # the last part of the first phase: rates fall to zero, long rows come in
    second_rate: float = 0.5  # the second phase starts at this factor and falls to zero
    matrix_rate: float = 2.5e-3
    vector_rate: float = 2.5e-3
    weight_decay: float = 0.05
    clip: float = 1.0
    tokenizer_documents: int = 30_000
    log_every: int = 50
    measure_every: int = 500
    measure_documents: int = 600
    save_every: int = 250

    def __post_init__(self) -> None:
        """ValueError names a field that no run could have."""
        check_positive(self, ("seed", "second_steps", "weight_decay"), ("decay", "second_rate"))

    @property
    def steps(self) -> int:
        return self.first_steps + self.second_steps

    def rate(self, step: int) -> float:
        """Factor on both learning rates."""
        if step < self.first_steps:
            rising = (step + 1) / self.warm_up
            falling = (self.first_steps - step) / (self.decay * self.first_steps)
            return min(1.0, rising, falling)
        since = step - self.first_steps
        rising = (since + 1) / self.warm_up
        return self.second_rate * min(1.0, rising, (self.second_steps - since) / self.second_steps)

    def is_long(self, step: int) -> bool:
        return step >= (1 - self.decay) * self.first_steps and step % self.long_every == 0

    def document(self, draw: Draw, step: int) -> Document:
        """One of a step's documents."""
        shares = FIRST if step < self.first_steps else SECOND
        if self.is_long(step):
            return make_long_document(draw, self.long_length, shares)
        return make_document(draw, shares)

    def batch(self, tokenizer: Tokenizer, step: int) -> Batch:
        rows, length = (self.long_rows, self.long_length) if self.is_long(step) else (self.rows, self.length)
        return make_batch(tokenizer, partial(self.document, step=step), self.seed, step, rows, length)


class Run(TrainingRun):
    """ValueError: the plan does not fit the shape, or `work` holds a run of another plan."""

    plan: Plan
    shape: Shape
    network: Network

    def __init__(self, plan: Plan, shape: Shape, work: Path, device: str) -> None:
        for name in ("length", "long_length"):
            if getattr(plan, name) > shape.context:
                raise ValueError(f"{name} is {getattr(plan, name)}, must be at most the context, {shape.context}")
        super().__init__(plan, shape, work, device)

    def make_tokenizer(self) -> Tokenizer:
        draw = Draw(f"{self.plan.seed}/tokenizer")
        texts = (make_document(draw).text for _ in range(self.plan.tokenizer_documents))
        return train_tokenizer(texts, self.shape.vocab)

    def make_network(self) -> Network:
        return Network(self.shape)

    def losses(self, forward: Callable[..., torch.Tensor]) -> tuple[dict[str, torch.Tensor], int]:
        batch = self.plan.batch(self.tokenizer, self.step)
        fields = (batch.tokens, batch.targets, batch.weights, batch.documents)
        loss = forward(*(field.to(self.device) for field in fields))
        return {"loss": loss}, int((batch.documents > 0).sum())

    def measure(self) -> None:
        """Held-out answers that are right, family by family, into the log."""
        draw = Draw(f"{self.plan.seed}/measure", held_out=True)
        documents = [make_document(draw) for _ in range(self.plan.measure_documents)]
        found = exact_matches(self.network, self.tokenizer, documents, self.plan.length)
        self.log("held out: " + ", ".join(f"{family} {right}/{asked}" for family, (right, asked) in found.items()))

    def export(self, folder: Path) -> None:
        """The Hugging Face folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", self.shape.config(eos_token_id=STOP_IDS, pad_token_id=3))
        save_file(self.network.checkpoint(), folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)  # written for its owner alone
        write_tokenizer(self.tokenizer, folder, self.shape.context)
