"""The headline workload through HTTP: a server of its own on this card, loaded by `ramet bench serving`.

3,000 prompts of random lengths up to 256 tokens and up to 512 new ones, all sent at once, as the reference's figure was
taken (11,732 output tokens/s on an H100). With penalties the same prompts again.

The limit multiplies all tokens by all weights, then reads the keys and values of every decode step, one after the
other: an engine that does both at once may pass it.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ramet.bench.gpu.card import DEVICE, GpuCard
from ramet.bench.gpu.lines import PRODUCT_SPEED, LineOptions, Lines
from ramet.bench.gpu.steps import kv_bytes_per_token, weights_of
from ramet.bench.loads import SHAPE_8B
from ramet.bench.offline import make_folder

PORT = 30123
PENALTIES = {"frequency_penalty": 0.5, "presence_penalty": 0.5, "repetition_penalty": 1.1}
WAIT_S = 120
LONGEST_PROMPT, LONGEST_OUTPUT = 256, 512  # tokens; lengths are drawn from 1 on


@contextmanager
def serving(*options: str, shape: dict[str, Any] = SHAPE_8B) -> Iterator[str]:
    """A server of random weights; its address."""
    address = f"http://127.0.0.1:{PORT}"
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_folder(Path(folder), shape)
        command = [
            sys.executable, "-m", "ramet", "serve", "--model-path", folder, "--load-format", "dummy",
            "--device", DEVICE.type, "--port", str(PORT), "--random-seed", "0", *options,
        ]  # fmt: skip
        process = subprocess.Popen(command)
        try:
            _wait(process, address)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _wait(process: "subprocess.Popen[bytes]", address: str) -> None:
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            urllib.request.urlopen(f"{address}/health", timeout=2).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(f"no server after {WAIT_S} s")


def load(address: str, num_prompts: int, **extra: Any) -> dict[str, Any]:
    """What `ramet bench serving` measured, its whole record."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        command = [
            sys.executable, "-m", "ramet", "bench", "serving", "--base-url", address, "--dataset-name", "random-ids",
            "--num-prompts", str(num_prompts), "--random-input-len", str(LONGEST_PROMPT),
            "--random-output-len", str(LONGEST_OUTPUT), "--flush-cache", "--disable-tqdm", "--output-file", file.name,
            *(["--extra-request-body", json.dumps(extra)] if extra else []),
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        record: dict[str, Any] = json.loads(Path(file.name).read_text())
        return record


def load_limit_s(
    card: GpuCard, options: LineOptions, shape: dict[str, Any], prompts: int, outputs: int, contexts: float
) -> float:
    """Of a load with so many tokens of prompts and outputs, whose decode steps read the keys of so many tokens."""
    layer, head = weights_of(shape)
    products = layer * shape["num_hidden_layers"] * (prompts + outputs) + head * outputs
    kv = contexts * kv_bytes_per_token(shape) * options.kv_number_bytes / 2
    return 2 * products / (card.flops_per_s * PRODUCT_SPEED[options.quantization]) + kv / card.read_bytes_per_s


def mean_contexts(num: int) -> float:
    """Tokens that the decode steps of so many requests read, where lengths are drawn evenly."""
    prompt, output = (1 + LONGEST_PROMPT) / 2, (1 + LONGEST_OUTPUT) / 2
    squares = (LONGEST_OUTPUT + 1) * (2 * LONGEST_OUTPUT + 1) / 6
    return num * (prompt * output + (squares - output) / 2)


def figures(card: GpuCard, options: LineOptions) -> Lines:
    with serving(*options.flags, "--max-penalised-requests", str(options.max_running)) as address:
        load(address, 64)
        loads: dict[str, dict[str, float]] = {"headline": {}}
        for name, extra in (loads | ({"headline, penalties": PENALTIES} if options.penalties else {})).items():
            before = steps_of(address)
            measured = load(address, options.num_prompts, **extra)["metrics"]
            steps, num_in, num_out = steps_of(address) - before, measured["input_tokens"], measured["output_tokens"]
            contexts = mean_contexts(options.num_prompts)
            limit = load_limit_s(card, options, SHAPE_8B, num_in, num_out, contexts)
            found = {
                "output_tokens_per_s": round(measured["output_throughput"]),
                "seconds": round(measured["duration_s"], 1),
                "of_limit": round(limit / measured["duration_s"], 3),
                "itl_ms": round(measured["itl_ms"]["median"], 2),
                "steps": steps,
                "tokens_a_step": round((num_in + num_out) / steps),
                "failed": measured["failed"],
            }
            yield name, found


def steps_of(address: str) -> int:
    """How many there have been."""
    with urllib.request.urlopen(f"{address}/get_server_info", timeout=10) as reply:
        return int(json.load(reply)["internal_states"][0]["steps"])
