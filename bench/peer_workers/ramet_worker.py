"""A process of `ramet bench peers`: ramet itself, in process."""

import argparse

from protocol import serve

import ramet
from ramet.runtime.llm import LLM

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("work")
p.add_argument("--quantization")
o = p.parse_args()
llm = LLM(
    model_path=o.model, max_total_tokens=32768, random_seed=0, log_level="warning", quantization=o.quantization,
    chunked_prefill_size=2048,
)  # fmt: skip


def generate(prompts: list[list[int]], output: int) -> list[int]:
    params = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    return [len(reply["output_ids"]) for reply in llm.generate(prompts, params)]


generate([[5] * 64], 4)
serve(ramet.__version__, generate)
