"""Decode steps whose rows draw with top-p, beside greedy ones: what the cut of the vocabulary costs a step."""

from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.lines import LineOptions, Lines
from ramet.bench.gpu.steps import StepModel, prompts, step_s

ROWS = (1, 64, 512)
PROMPT = 64  # tokens: drawing depends on none of them
TOP_P = {"temperature": 1.0, "top_p": 0.9, "sampling_seed": 0}


def figures(card: GpuCard, options: LineOptions, model: StepModel) -> Lines:
    for rows in ROWS:
        asked = prompts(rows, PROMPT, rows)
        greedy, cut = step_s(model, asked), step_s(model, asked, **TOP_P)
        yield f"sampling, {rows} row{'s' * (rows > 1)}", {
            "greedy_ms": round(greedy * 1e3, 3), "top_p_ms": round(cut * 1e3, 3),
            "more_ms": round((cut - greedy) * 1e3, 3), "times": round(cut / greedy, 3),
        }  # fmt: skip
