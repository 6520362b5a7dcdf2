"""Decode steps of a whole model on a card, in process: seconds of a step, beside what its bytes and operations allow.

Weights are random (`--load-format dummy`). A step's time is what a run of more new tokens takes longer than one of few,
for each token more: what comes before the first token falls out, and everything between two tokens is in it.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from ramet.bench.gpu.card import DEVICE, GpuCard
from ramet.bench.gpu.lines import PRODUCT_SPEED, LineOptions, Lines
from ramet.bench.gpu.model import FEW, MANY, MEASURED_CONTEXT, OWN, PROMPT, SHARED, SHARERS
from ramet.bench.loads import SHAPE_8B
from ramet.bench.offline import make_folder

STARTS = ("weights", "graphs", "warm-up", "cost of steps")
BATCHES = (1, 8, 32, 64, 128, 256)


class StepModel:
    """An engine with random weights of a shape; `close` when done."""

    def __init__(self, shape: dict[str, Any] = SHAPE_8B, **options: Any) -> None:
        from ramet.runtime.llm import LLM

        self._folder = tempfile.TemporaryDirectory(prefix="ramet-bench-")
        make_folder(Path(self._folder.name), shape)
        self.shape = shape
        self.llm = LLM(
            model_path=self._folder.name, device=DEVICE.type, load_format="dummy", random_seed=0, log_level="info",
            **{"max_running_requests": 512, **options},
        )  # fmt: skip

    def close(self) -> None:
        self.llm.close()
        self._folder.cleanup()

    def seconds(self, prompts: list[list[int]], num_new: int, **params: Any) -> float:
        started = time.perf_counter()
        asked = {"max_new_tokens": num_new, "temperature": 0, "ignore_eos": True} | params
        replies = self.llm.generate(prompts, asked)
        took = time.perf_counter() - started
        assert all(len(reply["output_ids"]) == num_new for reply in replies)
        return took


def prompts(num: int, length: int, seed: int) -> list[list[int]]:
    import random

    draw = random.Random(f"prompts {seed}")  # of a number, its sign would not count
    return [draw.choices(range(3, 100_000), k=length) for _ in range(num)]


def limit_s(
    shape: dict[str, Any], card: GpuCard, rows: int, context: float, shared: int = 0, options: LineOptions | None = None
) -> float:
    """Of a decode step: the longer of reading and multiplying for the weights, then reading keys and values.

    The first `shared` tokens of all rows are the same, and read once. The head stays bfloat16.
    """
    options = options or LineOptions()
    layer, head = weights_of(shape)
    layers = layer * shape["num_hidden_layers"]
    kv = kv_bytes_per_token(shape) * options.kv_number_bytes / 2 * ((context - shared) * rows + shared)
    read = layers * options.weight_bytes + 2 * head
    multiplied = 2 * rows * (layers / PRODUCT_SPEED[options.quantization] + head)
    return max(read / card.read_bytes_per_s, multiplied / card.flops_per_s) + kv / card.read_bytes_per_s


def weights_of(shape: dict[str, Any]) -> tuple[int, int]:
    """Numbers of a layer's matrices, and of the head."""
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    kv = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    return 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner, hidden * shape["vocab_size"]


def kv_bytes_per_token(shape: dict[str, Any]) -> int:
    head = shape["hidden_size"] // shape["num_attention_heads"]
    return 2 * 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head


def share_figures(card: GpuCard, options: LineOptions, model: StepModel) -> Lines:
    for rows in (1, 128):
        yield f"{rows} decoding", shares(model, rows)


def shares(model: StepModel, rows: int) -> dict[str, float]:
    """What part of the card's time each kernel takes while so many rows decode, the largest first."""
    from torch.profiler import ProfilerActivity, profile

    asked = prompts(rows, PROMPT, rows)
    model.seconds(asked, 4)
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        took = model.seconds(asked, FEW)
    took_us = {each.key: each.self_device_time_total for each in traced.key_averages()}
    total = sum(took_us.values())
    largest = sorted(took_us.items(), key=lambda item: -item[1])[:14]
    busy = {"busy": round(total / took / 1e6, 3)}
    return busy | {name[:60]: round(us / total, 4) for name, us in largest}


def figures(card: GpuCard, options: LineOptions, model: StepModel) -> Lines:
    yield from starts(model.llm.startup).items()
    for rows in BATCHES:
        step = step_s(model, prompts(rows, PROMPT, rows))
        limit = limit_s(model.shape, card, rows, MEASURED_CONTEXT, options=options)
        yield f"decode {rows} x {PROMPT}", {
            "ms": round(step * 1e3, 3), "tokens_per_s": round(rows / step), "of_limit": round(limit / step, 3),
        }  # fmt: skip
    yield f"decode {SHARERS} x ({SHARED} shared + {OWN})", _sharing(card, options, model)
    for length in (1024, 8192):
        model.seconds(prompts(1, length, -length), 1)
        took = min(model.seconds(prompts(1, length, length + each), 1) for each in range(3))
        layer, _ = weights_of(model.shape)
        flops = 2 * layer * model.shape["num_hidden_layers"] * length
        flops += 2 * model.shape["hidden_size"] * length**2 * model.shape["num_hidden_layers"]
        limit = flops / card.flops_per_s / PRODUCT_SPEED[options.quantization]
        yield f"first token of {length}", {"ms": round(took * 1e3, 2), "of_limit": round(limit / took, 3)}


def starts(phases: list[tuple[str, float]]) -> dict[str, dict[str, float]]:
    """What of the start is the card's."""
    return {f"start: {name}": {"s": round(seconds, 2)} for name, seconds in phases if name in STARTS}


def step_s(model: StepModel, asked: list[list[int]], **params: Any) -> float:
    """Seconds of a decode step of these prompts."""
    model.seconds(asked, 4, **params)  # from here on they are in the cache
    few, many = model.seconds(asked, FEW, **params), model.seconds(asked, MANY, **params)
    return (many - few) / (MANY - FEW)


def _sharing(card: GpuCard, options: LineOptions, model: StepModel) -> dict[str, float]:
    (common,) = prompts(1, SHARED, -1)
    step = step_s(model, [common + own for own in prompts(SHARERS, OWN, -2)])
    limit = limit_s(model.shape, card, SHARERS, SHARED + OWN + (FEW + MANY) / 2, SHARED, options)
    return {"ms": round(step * 1e3, 3), "tokens_per_s": round(SHARERS / step), "of_limit": round(limit / step, 3)}
