"""`ramet bench peers`: the same load on ramet and on other engines, each in an environment of its own, in one run.

`make peers` installs those that the registry has; one that is missing or does not start is named, never guessed.
Rounds go in turn, so that a noisy machine is noisy for all; figures are medians, and a ratio is ramet's to the best
other one. The share of the limit says how close a figure is to what the machine can do: bytes read and products made a
second, measured in the same run (kernels/cpu/limits.py).

  single   1 request    128 in              128 out
  batch    32 requests  256 in              128 out
  shared   64 requests  1,024 shared + 32    16 out, all at once, nothing cached
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loads import SHAPE, SHAPE_1B, Load
from ramet.bench.offline import make_checkpoint
from ramet.bench.peer_limits import limit_s
from ramet.bench.values import positive

WORKERS = Path(__file__).resolve().with_name("peer_workers")
ROOT = Path(__file__).resolve().parent.parent
MODELS: dict[str, dict[str, Any]] = {"160m": SHAPE, "1b": SHAPE_1B}
LOADS = {
    "single": Load("single", 1, 0, 128, 128, 1.0, 1),
    "batch": Load("batch", 32, 0, 256, 128, 1.0, 32),
    "shared": Load("shared", 64, 1024, 32, 16, 1.0, 8),
}
TOKENIZER = {  # what converters ask for
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine with the settings that its documentation recommends."""

    name: str
    worker: str
    weights: str  # bytes of a weight in memory, as scenarios call them: two-byte, int8, int4
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return Path(sys.executable) if self.worker == "ramet" else ROOT / ".peers" / self.worker / "bin" / "python"


VLLM = {"VLLM_CPU_KVCACHE_SPACE": "3", "VLLM_LOGGING_LEVEL": "ERROR"}
PEERS = (
    Peer("ramet", "ramet", "two-byte"),
    Peer("ramet int8", "ramet", "int8", ("--quantization", "int8")),
    Peer("transformers", "transformers", "two-byte"),
    Peer("vLLM", "vllm", "two-byte", environment=VLLM),
    Peer("vLLM, SGLang's kernels", "vllm", "two-byte", environment={**VLLM, "VLLM_CPU_SGL_KERNEL": "1"}),
    Peer("OpenVINO fp16", "openvino", "two-byte"),
    Peer("OpenVINO int8", "openvino", "int8", ("--weights", "int8")),
    Peer("CTranslate2 float32", "ctranslate2", "two-byte"),
    Peer("CTranslate2 int8", "ctranslate2", "int8", ("--compute", "int8_float32")),
)


class Missing(Exception):
    """A peer that is not installed or does not start; the message says which."""


class Side:
    """A process of one peer."""

    def __init__(self, process: "subprocess.Popen[str]", peer: Peer, started: float) -> None:
        self._process, self.peer = process, peer
        ready = self._answer()
        self.version, self.start_s = str(ready["version"]), float(ready["at"]) - started

    def run(self, load: Load, seed: int) -> float:
        """Seconds of one round."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": load.prompts(seed), "output": load.output}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer["lengths"] != [load.output] * load.requests:
            raise BadOption(f"{self.peer.name} made {sorted(set(answer['lengths']))} tokens, must make {load.output}")
        return float(answer["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Missing(f"{self.peer.name} ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench peers", description="The same load on ramet and on other engines.")
    p.add_argument("--model", choices=MODELS, action="append", help="default: 160m")
    p.add_argument("--load", choices=LOADS, action="append", help="default: all")
    p.add_argument("--weights", choices=("two-byte", "int8"), action="append", help="default: two-byte")
    p.add_argument("--peer", action="append", metavar="NAME", help="beside ramet; default: all that are installed")
    p.add_argument("--rounds", type=positive, default=5, help="default 5")
    p.add_argument("--busy", action="store_true", help="beside a process that keeps one core busy")
    p.add_argument("--output-file", type=Path, default=report.results_file("peers"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    try:
        records = list(measure(options))
    except BadOption as error:
        print(f"ramet bench peers: {error}", file=sys.stderr)
        return 2
    made = stamp.stamp(stamp.command_line("peers", argv))
    for record in records:
        report.append_line(options.output_file, {"bench": "peers", **made, **record})
    return 0


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A record for each model and kind of weights."""
    with tempfile.TemporaryDirectory(prefix="ramet-peers-") as work:
        for name in options.model or ["160m"]:
            folder = Path(work) / name
            folder.mkdir()
            make_checkpoint(folder, MODELS[name])
            (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
            for weights in options.weights or ["two-byte"]:
                with busy_core() if options.busy else ExitStack():
                    yield {
                        "model": name,
                        "weights": weights,
                        "busy": options.busy,
                        **compare(folder, weights, Path(work), options),
                    }


def compare(model: Path, weights: str, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    chosen = [
        peer
        for peer in PEERS
        if peer.weights == weights and (peer.worker == "ramet" or not options.peer or peer.name in options.peer)
    ]
    missing: list[str] = []
    with ExitStack() as stack:
        sides = []
        for peer in chosen:
            try:
                sides.append(stack.enter_context(_side(peer, model, work)))
            except Missing as why:
                missing.append(str(why))
                print(f"not measured: {why}", flush=True)
        loads = [
            _load(load, sides, MODELS[model.name], weights, options.rounds)
            for name, load in LOADS.items()
            if not options.load or name in options.load
        ]
        started = {side.peer.name: {"version": side.version, "start_s": round(side.start_s, 2)} for side in sides}
    return {"peers": started, "missing": missing, "loads": loads}


def _load(load: Load, sides: list[Side], shape: dict[str, Any], weights: str, rounds: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {side.peer.name: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            seconds[side.peer.name].append(round(side.run(load, number), 4))
    limit = limit_s(load, shape, weights)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ours, others = medians[sides[0].peer.name], {name: s for name, s in medians.items() if not name.startswith("ramet")}
    best = min(others, key=others.__getitem__, default=None)
    ratio = None if best is None else round(others[best] / ours, 3)
    for name, median in medians.items():
        tokens = load.requests * load.output / median
        rates = f"{tokens:9.1f} output tok/s {load.requests / median:8.2f} req/s"
        print(f"{load.name:<8} {name:<24} {median:8.2f} s {rates} {limit / median:6.0%} of the limit", flush=True)
    if best is not None:
        print(f"{load.name:<8} ramet makes {ratio:.2f} of {best}", flush=True)
    lengths = {"requests": load.requests, "shared": load.shared, "own": load.own, "output": load.output}
    return {"load": load.name, **lengths, "seconds": seconds, "limit_s": round(limit, 4), "best": best, "ratio": ratio}


@contextmanager
def _side(peer: Peer, model: Path, work: Path) -> Iterator[Side]:
    """Ready, with a first call behind it. Raises Missing."""
    if not peer.python.is_file():
        raise Missing(f"{peer.name} is not installed (make peers)")
    environment = {**os.environ, **peer.environment}
    if peer.worker == "ramet":
        environment["PYTHONPATH"] = str(ROOT)
    command = [str(peer.python), str(WORKERS / f"{peer.worker}_worker.py"), str(model), str(work), *peer.arguments]
    started = time.time()
    pipe = subprocess.PIPE
    with (
        open(work / f"{peer.worker}.log", "ab") as log,
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True) as process,
    ):
        try:
            yield Side(process, peer, started)
        finally:
            process.kill()


@contextmanager
def busy_core() -> Iterator[None]:
    """A process that computes and nothing else."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
