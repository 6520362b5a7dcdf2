"""A process of `ramet bench peers`: ramet itself, in process."""

from protocol import arguments, serve

import ramet
from ramet.runtime.llm import LLM

o = arguments(quantization="", kv_cache_dtype="auto")
llm = LLM(
    model_path=str(o.model), max_total_tokens=32768, random_seed=0, log_level="warning",
    quantization=o.quantization or None, kv_cache_dtype=o.kv_cache_dtype, chunked_prefill_size=2048,
)  # fmt: skip


def generate(prompts: list[list[int]], output: int) -> list[int]:
    params = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    return [len(reply["output_ids"]) for reply in llm.generate(prompts, params)]


serve(ramet.__version__, generate)
