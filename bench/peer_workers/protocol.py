"""What a process of `ramet bench peers` says and is asked, a JSON object a line. Runs in environments without ramet."""

import json
import os
import sys
import time
from collections.abc import Callable

Generate = Callable[[list[list[int]], int], list[int]]  # prompts, new tokens -> how many tokens each got


def serve(version: str, generate: Generate) -> None:
    """`generate` answers all prompts at once. The first line goes out when the model is ready."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints is no answer
    answer(output, {"version": version, "at": time.time()})
    for line in sys.stdin:
        asked = json.loads(line)
        start = time.perf_counter()
        lengths = generate(asked["prompts"], asked["output"])
        answer(output, {"seconds": time.perf_counter() - start, "lengths": lengths})


def answer(output: object, said: dict[str, object]) -> None:
    print(json.dumps(said), file=output, flush=True)  # type: ignore[call-overload]
