"""ramet beside transformers' continuous batching on the same card: one load, in turn, with the same prompts.

Both have an 8B shape with random weights in bfloat16 and choose the most probable token. What transformers sets up
once (its cache, its graphs) is not timed. Of the card's memory ramet takes what the load needs, transformers 80% of
what is left.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.lines import LineOptions, Lines
from ramet.bench.gpu.steps import StepModel, prompts
from ramet.bench.loads import SHAPE_8B

NUM, PROMPT, NEW = 256, 256, 256
ROUNDS = 3
MEMORY = 0.8  # of what is free


class Transformers:
    """A model of a shape with random weights and a manager of its batches, which stays. `sizes` are the manager's."""

    def __init__(
        self, shape: dict[str, Any], device: str = "cuda", dtype: torch.dtype = torch.bfloat16, **sizes: Any
    ) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

        config = AutoConfig.for_model(**{key: value for key, value in shape.items() if key != "torch_dtype"})
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
        self._model = model.eval()
        self._settings = dict(
            generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0),
            continuous_batching_config=ContinuousBatchingConfig(**({"max_memory_percent": MEMORY} | sizes)),
        )

    def seconds(self, asked: Sequence[list[int]], num_new: int) -> float:
        started = time.perf_counter()
        made = self._model.generate_batch(
            list(asked), max_new_tokens=num_new, persistent_manager=True, progress_bar=False, **self._settings
        )
        took = time.perf_counter() - started
        lengths = {len(each.generated_tokens) for each in made.values()}
        assert len(made) == len(asked) and lengths == {num_new}, (len(made), lengths)
        return took

    def close(self) -> None:
        self._model.destroy_cached_continuous_batching_manager()


def figures(card: GpuCard, options: LineOptions) -> Lines:
    """Output tokens a second of both, and how many times transformers' seconds are ramet's: the median of rounds."""
    ours = StepModel(SHAPE_8B, max_total_tokens=NUM * (PROMPT + NEW) + NUM, max_running_requests=NUM)
    try:
        theirs = Transformers(SHAPE_8B)
        try:
            yield f"{NUM} x ({PROMPT} + {NEW})", compare(ours, theirs)
        finally:
            theirs.close()
    finally:
        ours.close()


def compare(ours: Any, theirs: Any, num: int = NUM, length: int = PROMPT, new: int = NEW) -> dict[str, float]:
    """Either has `seconds(prompts, new tokens)`."""
    took: dict[str, list[float]] = {"ramet": [], "transformers": []}
    for round_ in range(ROUNDS + 1):
        asked = prompts(num, length, 1000 + round_)
        for name, engine in (("ramet", ours), ("transformers", theirs)):
            seconds = engine.seconds(asked, new)
            if round_:  # the first sets up what stays
                took[name].append(seconds)
    ratios = [other / own for own, other in zip(took["ramet"], took["transformers"], strict=True)]
    rates = {f"{name}_tokens_per_s": round(num * new / statistics.median(each)) for name, each in took.items()}
    return {**rates, "times": round(statistics.median(ratios), 2)}
