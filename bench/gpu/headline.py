"""The headline workload through HTTP: a server of its own on this card, loaded by `ramet bench serving`.

3,000 prompts of random lengths up to 256 tokens and up to 512 new ones, all sent at once, as the reference's figure was
taken (11,732 output tokens/s on an H100). With penalties the same prompts again.
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

from ramet.bench.loads import SHAPE_8B
from ramet.bench.offline import make_folder

PORT = 30123
PENALTIES = {"frequency_penalty": 0.5, "presence_penalty": 0.5, "repetition_penalty": 1.1}
WAIT_S = 120
OPTIONS = ("--max-running-requests", "512", "--max-penalised-requests", "512", "--cuda-graph-max-bs", "512")


@contextmanager
def serving(*options: str, shape: dict[str, Any] = SHAPE_8B) -> Iterator[str]:
    """A server of random weights; its address."""
    address = f"http://127.0.0.1:{PORT}"
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_folder(Path(folder), shape)
        command = [
            sys.executable, "-m", "ramet", "serve", "--model-path", folder, "--load-format", "dummy",
            "--device", "cuda", "--port", str(PORT), "--random-seed", "0", *options,
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
            "--num-prompts", str(num_prompts), "--random-input-len", "256", "--random-output-len", "512",
            "--flush-cache", "--disable-tqdm", "--output-file", file.name,
            *(["--extra-request-body", json.dumps(extra)] if extra else []),
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        record: dict[str, Any] = json.loads(Path(file.name).read_text())
        return record


def figures(num_prompts: int) -> dict[str, dict[str, float]]:
    found = {}
    with serving(*OPTIONS) as address:
        load(address, 64)
        for name, extra in (("headline", {}), ("headline, penalties", PENALTIES)):
            measured = load(address, num_prompts, **extra)["metrics"]
            found[name] = {
                "output_tokens_per_s": round(measured["output_throughput"]),
                "seconds": round(measured["duration_s"], 1),
                "itl_ms": round(measured["itl_ms"]["median"], 2),
                "failed": measured["failed"],
            }
    return found
