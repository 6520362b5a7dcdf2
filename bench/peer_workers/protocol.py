"""What a process of `ramet bench peers` says and is asked, a JSON object a line. Runs in environments without ramet."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

# names the descriptor to answer on, because engines and their processes print as they like
ANSWERS = "RAMET_BENCH_ANSWERS"
Generate = Callable[[list[list[int]], int], list[int]]  # prompts, new tokens -> how many tokens each got
FIRST = list(range(100, 228))  # the prompt whose first token ends a start


def arguments(**named: str) -> argparse.Namespace:
    """`model`, a checkpoint's folder; `work`, where what is made of it is kept; `prepare`, make that and end; `named`
    options and their defaults."""
    p = argparse.ArgumentParser()
    p.add_argument("model", type=Path)
    p.add_argument("work", type=Path)
    p.add_argument("--prepare", action="store_true")
    for name, default in named.items():
        p.add_argument("--" + name.replace("_", "-"), default=default)
    return p.parse_args()


def serve(version: str, generate: Generate, since: float | None = None, pool_bytes: int | None = None) -> None:
    """`generate` answers all prompts at once. The first line goes out with the first token: when it came, when the
    start began if that was later than this process's own (`since`, of time.time()), and how large a pool of keys and
    values is that is in memory from the start."""
    generate([FIRST], 1)
    answer({"version": version, "at": time.time(), "since": since, "pool_bytes": pool_bytes})
    for line in sys.stdin:
        asked = json.loads(line)
        start, cpu = time.perf_counter(), time.process_time()
        lengths = generate(asked["prompts"], asked["output"])
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu
        answer({"seconds": seconds, "cpu_s": cpu_s, "lengths": lengths})


def answer(said: dict[str, object]) -> None:
    os.write(int(os.environ[ANSWERS]), json.dumps(said).encode() + b"\n")


def shared_length(prompts: list[list[int]]) -> int:
    """How many tokens all prompts begin with, for engines that must be told; 0 for one prompt."""
    if len(prompts) < 2:
        return 0
    first, last = min(prompts), max(prompts)
    ends = min(len(first), len(last)) - 1  # each prompt keeps a token of its own
    return next((at for at in range(ends) if first[at] != last[at]), ends)
