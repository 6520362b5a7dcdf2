"""One training run: its state, its log, its optimizers, and the loop over its steps.

Decides when is logged, measured and saved, and how a run that was cut off goes on. Matrices go to Muon (orthogonalised
momentum, which needs about half of AdamW's tokens), embeddings and norms to AdamW. Knows no model and no data: a
subclass has both.
"""

import ctypes
import hashlib
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TextIO

import torch
from tokenizers import Tokenizer
from torch import nn


class Schedule(Protocol):
    """What a plan says to the loop."""

    seed: int
    matrix_rate: float
    vector_rate: float
    weight_decay: float
    clip: float
    log_every: int
    measure_every: int
    save_every: int

    @property
    def steps(self) -> int: ...

    def rate(self, step: int) -> float: ...


def check_positive(plan: Any, may_be_zero: tuple[str, ...], at_most_one: tuple[str, ...]) -> None:
    """ValueError names a field that no run could have."""
    for name, value in asdict(plan).items():
        if value < 0 or (value == 0 and name not in may_be_zero):
            raise ValueError(f"{name} is {value}, must be {'>= 0' if name in may_be_zero else '> 0'}")
    for name in at_most_one:
        if getattr(plan, name) > 1:
            raise ValueError(f"{name} is {getattr(plan, name)}, must be at most 1")


class Log:
    """Lines to the terminal and to a file that later runs go on with."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")

    def __call__(self, line: str) -> None:
        print(line, flush=True)
        self._file.write(line + "\n")
        self._file.flush()


class TrainingRun(ABC):
    """State in `work`: state.pt, training.log. ValueError: `work` holds a run of another plan."""

    def __init__(self, plan: Any, shape: Any, work: Path, device: str) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.plan, self.shape, self.work, self.device = plan, shape, work, torch.device(device)
        self.log = Log(work / "training.log")
        torch.manual_seed(plan.seed)
        self.step, self.tokens, self.seconds, self.cpu_seconds = 0, 0, 0.0, 0.0
        state = torch.load(work / "state.pt", weights_only=True) if (work / "state.pt").exists() else None
        if state is not None:
            self._check_identity(state["run"])
        self.tokenizer = self.make_tokenizer() if state is None else Tokenizer.from_str(state["tokenizer"])
        self.network = self.make_network().to(self.device)
        matrices = self.network.matrices()
        vectors = [parameter for parameter in self.network.parameters() if all(parameter is not m for m in matrices)]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, weight_decay=plan.weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(vectors, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        if state is None:
            self.begin()
        else:
            self._take(state)
        self._log_run()

    @abstractmethod
    def make_tokenizer(self) -> Tokenizer: ...

    @abstractmethod
    def make_network(self) -> nn.Module:
        """It has `matrices()`: its parameters for Muon."""

    def begin(self) -> None:  # noqa: B027 of most networks nothing is asked
        """Before a network's first step."""

    @abstractmethod
    def losses(self, forward: Callable[..., Any]) -> tuple[dict[str, torch.Tensor], int]:
        """This step's, of which the sum is made smaller, and the number of tokens seen without padding."""

    @abstractmethod
    def measure(self) -> None:
        """Held-out answers that are right, into the log."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """The Hugging Face folder."""

    def write(self, folder: Path) -> None:
        """The folder, and into the log by what its weights are known."""
        self.export(folder)
        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        self.log(f"wrote model.safetensors, SHA-256 {digest}")

    def _check_identity(self, there: dict[str, object]) -> None:
        asked = self._identity()
        if there != asked:
            other = [name for name in asked if there.get(name) != asked[name]]
            ways = ", ".join(f"{name} is {there.get(name)} there, {asked[name]} asked" for name in other)
            raise ValueError(f"{self.work / 'state.pt'} is of another run: {ways}; give another --work")

    def _take(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.tokens = state["step"], state["tokens"]
        self.seconds, self.cpu_seconds = state["seconds"], state["cpu_seconds"]
        self.log(f"resumed at step {self.step}")

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
            **dict(step=self.step, tokens=self.tokens, seconds=self.seconds, cpu_seconds=self.cpu_seconds),
        }
        torch.save(state, self.work / "state.pt.new")
        (self.work / "state.pt.new").replace(self.work / "state.pt")

    def train(self, compiled: bool) -> None:
        keep_freed_memory()
        forward = torch.compile(self.network, dynamic=False) if compiled else self.network
        losses: list[dict[str, torch.Tensor]] = []
        since_tokens, since = 0, time.monotonic()
        while self.step < self.plan.steps:
            started, started_cpu = time.monotonic(), time.process_time()
            found, count = self._one_step(forward)
            losses.append(found)
            self.step += 1
            self.tokens += count
            since_tokens += count
            self.seconds += time.monotonic() - started
            self.cpu_seconds += time.process_time() - started_cpu
            if self.step % self.plan.log_every == 0:
                self._log_steps(losses, since_tokens / (time.monotonic() - since))
                losses, since_tokens, since = [], 0, time.monotonic()
            if self.step % self.plan.save_every == 0 or self.step == self.plan.steps:
                self.save()
            if self.step % self.plan.measure_every == 0 or self.step == self.plan.steps:
                self.measure()
                since = time.monotonic()

    def _log_steps(self, losses: list[dict[str, torch.Tensor]], speed: float) -> None:
        names = dict.fromkeys(name for each in losses for name in each)
        means = {name: torch.stack([each[name] for each in losses if name in each]).mean().item() for name in names}
        shown = " ".join(f"{name} {mean:.4f}" for name, mean in means.items())
        rate = self.plan.rate(self.step - 1)
        took = f"{self.cpu_seconds / 60:.1f} CPU min {self.seconds / 60:.1f} min"
        self.log(f"step {self.step} tokens {self.tokens:,} {shown} rate {rate:.3f} {speed:,.0f} tokens/s {took}")

    def _one_step(self, forward: Callable[..., Any]) -> tuple[dict[str, torch.Tensor], int]:
        for optimizer, base in zip(self.optimizers, (self.plan.matrix_rate, self.plan.vector_rate), strict=True):
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = base * self.plan.rate(self.step)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=has_bf16(self.device)):
            losses, count = self.losses(forward)
        torch.stack(list(losses.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.plan.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        return {name: loss.detach() for name, loss in losses.items()}, count


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
