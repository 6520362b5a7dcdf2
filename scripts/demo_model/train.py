"""Train the demo model: from seed to a Hugging Face folder, with a log of every figure.

Decides the optimizers, their schedule, the phases of row length, checkpoints and the log. Knows no family of documents.
Matrices of the layers go to Muon (orthogonalised momentum, which needs about half of AdamW's tokens), embeddings and
norms to AdamW. Rates: linear warm-up, constant, linear to zero over the last part; the last part's rows are longer, so
that the context is used to its end. A second, shorter phase starts at half the rate with another mix. A batch depends
on (seed, step) alone, so a run that was cut off goes on exactly.

    python -m scripts.demo_model train FOLDER --work WORK        starts, or goes on from WORK
"""

import ctypes
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from scripts.demo_model.batches import Batch, make_batch
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.mix import FIRST, SECOND, make_document, make_long_document
from scripts.demo_model.measure import exact_matches
from scripts.demo_model.network import Network, Shape
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
        for name, value in asdict(self).items():
            may_be_zero = name in ("seed", "second_steps", "weight_decay")
            if value < 0 or (value == 0 and not may_be_zero):
                raise ValueError(f"{name} is {value}, must be {'>= 0' if may_be_zero else '> 0'}")
        for name in ("decay", "second_rate"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at most 1")

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


class Log:
    """Lines to the terminal and to a file that later runs go on with."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")

    def __call__(self, line: str) -> None:
        print(line, flush=True)
        self._file.write(line + "\n")
        self._file.flush()


class Run:
    """One training run with its state in `work`: state.pt, training.log.

    ValueError: the plan does not fit the shape, or `work` holds a run of another plan.
    """

    def __init__(self, plan: Plan, shape: Shape, work: Path, device: str) -> None:
        for name in ("length", "long_length"):
            if getattr(plan, name) > shape.context:
                raise ValueError(f"{name} is {getattr(plan, name)}, must be at most the context, {shape.context}")
        work.mkdir(parents=True, exist_ok=True)
        self.plan, self.shape, self.work, self.device = plan, shape, work, torch.device(device)
        self.log = Log(work / "training.log")
        torch.manual_seed(plan.seed)
        self.network = Network(shape).to(self.device)
        layers = self.network.layers.named_parameters()
        matrices = [parameter for _, parameter in layers if parameter.dim() == 2]
        vectors = [parameter for parameter in self.network.parameters() if all(parameter is not m for m in matrices)]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, weight_decay=plan.weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(vectors, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self.tokenizer = self._resume() if (work / "state.pt").exists() else self._start()

    def _start(self) -> Tokenizer:
        draw = Draw(f"{self.plan.seed}/tokenizer")
        texts = (make_document(draw).text for _ in range(self.plan.tokenizer_documents))
        tokenizer = train_tokenizer(texts, self.shape.vocab)
        self._log_run()
        return tokenizer

    def _resume(self) -> Tokenizer:
        path = self.work / "state.pt"
        state = torch.load(path, weights_only=True)
        there, asked = state["run"], self._identity()
        if there != asked:
            other = [name for name in asked if there.get(name) != asked[name]]
            ways = ", ".join(f"{name} is {there.get(name)} there, {asked[name]} asked" for name in other)
            raise ValueError(f"{path} is of another run: {ways}; give another --work")
        self.network.load_state_dict(state["network"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]
        self.log(f"resumed at step {self.step}")
        self._log_run()
        return Tokenizer.from_str(state["tokenizer"])

    def _identity(self) -> dict[str, object]:
        """What two runs must share for one to go on from the other."""
        return asdict(self.plan) | asdict(self.shape)

    def _log_run(self) -> None:
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        where = f"{torch.get_num_threads()} threads" if self.device.type == "cpu" else torch.cuda.get_device_name()
        capability = torch.backends.cpu.get_cpu_capability()
        self.log(f"machine: {platform.machine()} {capability}, {where}, torch {torch.__version__}")
        self.log(f"plan: {self.plan}\nshape: {self.shape}, {parameters:,} parameters")

    def save(self) -> None:
        """Written beside and renamed, so that a cut-off never leaves half a state."""
        state = {
            "run": self._identity(),
            "tokenizer": self.tokenizer.to_str(),
            "network": self.network.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            **dict(step=self.step, tokens=self.tokens, seconds=self.seconds),
        }
        torch.save(state, self.work / "state.pt.new")
        (self.work / "state.pt.new").replace(self.work / "state.pt")

    def train(self, compiled: bool) -> None:
        keep_freed_memory()
        forward = torch.compile(self.network, dynamic=False) if compiled else self.network
        losses: list[torch.Tensor] = []
        since_tokens, since = 0, time.monotonic()
        while self.step < self.plan.steps:
            started = time.monotonic()
            loss, count = self._one_step(forward)
            losses.append(loss)
            self.step += 1
            self.tokens += count
            since_tokens += count
            self.seconds += time.monotonic() - started
            if self.step % self.plan.log_every == 0:
                mean = torch.stack(losses).mean().item()
                speed = since_tokens / (time.monotonic() - since)
                rate = self.plan.rate(self.step - 1)
                self.log(
                    f"step {self.step} tokens {self.tokens:,} loss {mean:.4f} rate {rate:.3f} "
                    f"{speed:,.0f} tokens/s {self.seconds / 60:.1f} min"
                )
                losses, since_tokens, since = [], 0, time.monotonic()
            if self.step % self.plan.save_every == 0 or self.step == self.plan.steps:
                self.save()
            if self.step % self.plan.measure_every == 0 or self.step == self.plan.steps:
                self.measure()
                since = time.monotonic()

    def _one_step(self, forward: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, int]:
        """The loss, and the number of tokens seen without padding."""
        batch = self.plan.batch(self.tokenizer, self.step)
        fields = (batch.tokens, batch.targets, batch.weights, batch.documents)
        for optimizer, base in zip(self.optimizers, (self.plan.matrix_rate, self.plan.vector_rate), strict=True):
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = base * self.plan.rate(self.step)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=has_bf16(self.device)):
            loss = forward(*(field.to(self.device) for field in fields))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.plan.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach(), int((batch.documents > 0).sum())

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


def keep_freed_memory() -> None:
    """Let the C library (glibc) keep the blocks it frees: a step's buffers then cost no page faults, a fifth of it."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-4, 0)  # M_MMAP_MAX: large blocks too come from the heap
        libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD: which never shrinks


def has_bf16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware; without it they are slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return torch.cpu._is_avx512_bf16_supported()  # type: ignore[attr-defined]
