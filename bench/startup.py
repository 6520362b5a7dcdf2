"""`ramet bench startup`: how long a server takes until it is ready, what each process spends it on, and its memory.

  ready_s         from the start of the command until it has announced its address; all processes are up by then
  first_answer_s  from the same moment until a first request, for one token, has been answered
  memory          the proportional set size of all processes, the most that is seen while a load fills the KV pool,
                  without the pool

A model of the 160M shape, made by seed. A first start packs its weights and keeps them; it is shown alone. Each of the
others has fresh processes and maps what was kept. Prints the phases of the last start.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loads import SHAPE, Load
from ramet.bench.offline import make_checkpoint
from ramet.bench.server import await_kept, proportional_bytes, started
from ramet.bench.values import positive

TARGET_S = 3.0
TARGET_BYTES = 10**9
LOAD = Load("memory", 32, 0, 240, 16, 1.0, 32)
POOL_TOKENS = LOAD.requests * (LOAD.own + LOAD.output)
SAMPLE_S = 0.05


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_checkpoint(Path(folder))
        serve = ["--model-path", folder, "--weights-cache-dir", f"{folder}/weights", *options.serve]
        try:
            first = measure(serve, keeps=Path(folder) / "weights")
            rounds = [measure(serve) for _ in range(options.rounds)]
            memory = measure_memory(serve)
        except BadOption as error:
            print(f"ramet bench startup: {error}", file=sys.stderr)
            return 1
    ready = [one["ready_s"] for one in rounds]
    answered = [one["first_answer_s"] for one in rounds]
    print(f"first start (s)   {first['ready_s']:.2f}, which packs the weights and keeps them")
    print("ready (s)        ", "  ".join(f"{s:.2f}" for s in ready), f"  median {statistics.median(ready):.2f}")
    print("first answer (s) ", "  ".join(f"{s:.2f}" for s in answered), f"  median {statistics.median(answered):.2f}")
    for role, phases in rounds[-1]["phases"].items():
        print(f"  {role:<12} {phases}")
    print(
        f"memory (MB)       {memory['beyond_pool_bytes'] / 1e6:.0f} beyond the pool's {memory['pool_bytes'] / 1e6:.0f}"
    )
    print(f"targets: first answer within {TARGET_S:g} s, {TARGET_BYTES / 1e6:.0f} MB")
    record = {"bench": "startup", **stamp.stamp(stamp.command_line("startup", argv)), "model": "160m"}
    record |= {"ready_s": ready, "first_answer_s": answered, "first_start_s": first["ready_s"], "memory": memory}
    record |= {"median_ready_s": statistics.median(ready), "phases": rounds[-1]["phases"]}
    report.append_line(options.output_file, record)
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench startup", description=__doc__, formatter_class=formatter)
    p.add_argument("--rounds", type=positive, default=5, help="starts, default 5")
    p.add_argument("--output-file", type=Path, default=report.results_file("startup"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def measure(serve: Sequence[str], keeps: Path | None = None) -> dict[str, Any]:
    """One start: seconds until the address is announced and until a token came back, and the phases.

    Returns when weights are kept in `keeps`.
    """
    start = time.perf_counter()
    with started(serve) as server:
        ready_s = time.perf_counter() - start
        ask(server.url)
        first_answer_s = time.perf_counter() - start
        if keeps is not None:
            await_kept(keeps)
        return {"ready_s": ready_s, "first_answer_s": first_answer_s, "phases": server.phases}


def measure_memory(serve: Sequence[str]) -> dict[str, int]:
    """Of a server whose pool is just large enough for the load, so that all of the pool is memory at its end."""
    found, over = [0], threading.Event()
    with started([*serve, "--max-total-tokens", str(POOL_TOKENS)]) as server:

        def watch() -> None:
            while not over.wait(SAMPLE_S):
                found.append(proportional_bytes(server.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            params = {"max_new_tokens": LOAD.output, "ignore_eos": True}
            ask(server.url, {"input_ids": LOAD.prompts(0), "sampling_params": params})
        finally:
            over.set()
            watching.join()
        found.append(proportional_bytes(server.pid))
    return {"beyond_pool_bytes": max(found) - pool_bytes(), "pool_bytes": pool_bytes()}


def pool_bytes(shape: dict[str, Any] = SHAPE) -> int:
    """Of keys and values in bfloat16."""
    head_dim = shape["hidden_size"] // shape["num_attention_heads"]
    return 2 * 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head_dim * POOL_TOKENS


def ask(url: str, asked: dict[str, Any] | None = None) -> None:
    body = json.dumps(asked or {"text": "Hello", "sampling_params": {"max_new_tokens": 1}}).encode()
    request = urllib.request.Request(f"{url}/generate", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            reply.read()
    except OSError as error:  # which an HTTP status of 400 or more is as well
        raise BadOption(f"{url}/generate gives no answer: {error}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
