"""Variants measured side by side: in what order they run, how one run is made, and how sure a median is.

Knows no variant. A noisy machine is noisy for all variants of a round, so figures are compared inside a round.
"""

import contextlib
import io
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.bench import serving
from ramet.bench.errors import BadOption

CONFIDENCE = 0.95


def turned(names: list[str], number: int) -> list[str]:
    """Another one first in every round."""
    at = number % len(names)
    return names[at:] + names[:at]


def run_serving(url: str, argv: Sequence[str], folder: Path) -> dict[str, Any]:
    """One run of `ramet bench serving` from an empty prefix cache; its metrics. BadOption if it fails."""
    lines = folder / "runs.jsonl"
    own = ["--base-url", url, "--flush-cache", "--disable-tqdm", "--output-file", str(lines)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = serving.main([*own, *argv])
    if code:
        raise BadOption(f"a run with {' '.join(argv)} failed:\n{printed.getvalue()}")
    metrics: dict[str, Any] = json.loads(lines.read_text().splitlines()[-1])["metrics"]
    return metrics


def interval(values: list[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics that holds the median in CONFIDENCE of cases; the outermost at worst."""
    ordered, num = sorted(values), len(values)
    for out in range((num - 1) // 2, -1, -1):  # values left out at each end
        holds = 1 - 2 * sum(math.comb(num, i) for i in range(out + 1)) / 2**num
        if holds >= CONFIDENCE or out == 0:
            return ordered[out], ordered[num - 1 - out]
    return ordered[0], ordered[-1]


def told(ratios: list[float]) -> dict[str, float]:
    """Their median with its interval, as records have it."""
    low, high = interval(ratios)
    return {"median": round(statistics.median(ratios), 4), "low": round(low, 4), "high": round(high, 4)}
