"""The load of the headline without HTTP, in one process: what the engine alone makes of it, and how busy the card is.

The first figure is of the whole load. Then a third of it runs again while a second of it is traced: what part of that
second anything ran on the card, and how long a step took.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor

from torch.profiler import DeviceType

from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.headline import LONGEST_OUTPUT, LONGEST_PROMPT, load_limit_s
from ramet.bench.gpu.lines import LineOptions, Lines
from ramet.bench.gpu.steps import StepModel

WARM, TRACED_AFTER_S, TRACED_S = 64, 4.0, 1.0
Load = tuple[list[list[int]], list[int]]  # prompts, new tokens of each


def draw(num: int, seed: int) -> Load:
    chance = random.Random(f"headline {seed}")
    lengths = [chance.randint(1, LONGEST_PROMPT) for _ in range(num)]
    asked = [chance.choices(range(3, 100_000), k=length) for length in lengths]
    return asked, [chance.randint(1, LONGEST_OUTPUT) for _ in range(num)]


def figures(card: GpuCard, options: LineOptions, model: StepModel) -> Lines:
    _run(model, draw(WARM, 0))
    load = draw(options.num_prompts, 1)
    before, took = _steps(model), _run(model, load)
    prompts, outputs = [len(prompt) for prompt in load[0]], load[1]
    steps, num_in, num_out = _steps(model) - before, sum(prompts), sum(outputs)
    limit = load_limit_s(card, options, model.shape, num_in, num_out, contexts_of(prompts, outputs))
    yield "offline headline", {
        "output_tokens_per_s": round(num_out / took), "seconds": round(took, 1), "of_limit": round(limit / took, 3),
        "steps": steps, "tokens_a_step": round((num_in + num_out) / steps),
    }  # fmt: skip
    yield "offline headline, traced", _traced(model, draw(max(1, options.num_prompts // 3), 2))


def contexts_of(prompts: list[int], outputs: list[int]) -> int:
    """Tokens whose keys are read by all decode steps together."""
    return sum(new * prompt + new * (new - 1) // 2 for prompt, new in zip(prompts, outputs, strict=True))


def _run(model: StepModel, load: Load) -> float:
    """Seconds."""
    asked, lengths = load
    started = time.perf_counter()
    params = [{"max_new_tokens": new, "temperature": 0, "ignore_eos": True} for new in lengths]
    replies = model.llm.generate(asked, params)
    took = time.perf_counter() - started
    assert [len(reply["output_ids"]) for reply in replies] == lengths
    return took


def _steps(model: StepModel) -> int:
    return int(model.llm.state()["steps"])


def _traced(model: StepModel, load: Load) -> dict[str, float]:
    from torch.profiler import ProfilerActivity, profile

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_run, model, load)
        time.sleep(TRACED_AFTER_S)
        with profile(activities=[ProfilerActivity.CUDA]) as traced:
            before, began = _steps(model), time.perf_counter()
            time.sleep(TRACED_S)
            steps, took = _steps(model) - before, time.perf_counter() - began
        running.result()
    kineto = traced.profiler.kineto_results if traced.profiler is not None else None
    assert kineto is not None
    on_card = [each for each in kineto.events() if each.device_type() == DeviceType.CUDA]
    busy = busy_share([(each.start_ns(), each.end_ns()) for each in on_card])
    return {"busy": round(busy, 3), "step_ms": round(took / max(1, steps) * 1e3, 2)}


def busy_share(spans: list[tuple[int, int]]) -> float:
    """What part of the time from the first begin to the last end at least one of them runs. (begin, end)"""
    busy, end = 0, min(begin for begin, _ in spans)
    for begin, ends in sorted(spans):
        busy += max(0, ends - max(begin, end))
        end = max(end, ends)
    return busy / (end - min(begin for begin, _ in spans))
