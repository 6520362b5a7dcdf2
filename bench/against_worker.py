"""A process of `ramet bench against`: an LLM of the checkout that PYTHONPATH names. Rounds come in, seconds go out.

Uses nothing of ramet but `LLM`, so that it runs with checkouts of different ages.
"""

import json
import sys
import time

import torch

import ramet
from ramet.runtime.llm import LLM

POOL_TOKENS = 32768


def main(model: str) -> None:
    torch.randn(1 << 20).sum()  # as any program that has used torch: its main thread has a pool of CPU threads
    llm = LLM(model_path=model, max_total_tokens=POOL_TOKENS, random_seed=0, log_level="warning")
    _answer({"package": ramet.__file__})
    for line in sys.stdin:
        asked = json.loads(line)
        params = {"max_new_tokens": asked["output"], "temperature": 0, "ignore_eos": True}
        start = time.perf_counter()
        replies = llm.generate(asked["prompts"], params)
        seconds = time.perf_counter() - start
        _answer({"seconds": seconds, "lengths": [len(reply["output_ids"]) for reply in replies]})


def _answer(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
