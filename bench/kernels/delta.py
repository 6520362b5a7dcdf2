"""`ramet bench delta`: what a layer with a state (a gated delta net) computes a second, beside what the machine can.

A prompt of one row goes through a layer whole and in steps of fewer tokens, down to one, as a row that decodes does.
Its share of the limit is that of the state alone: four operations of a vector unit for each number of a state and token
(forget, correct, read, and look up the next key), at the rate of float32 products that the same run measures
(kernels/cpu/limits.py). All that a layer does but its projections is counted in its time: convolution, norms, gates.
Cases go in turn, round by round.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ramet.bench import report, stamp
from ramet.bench.rounds import turned
from ramet.bench.values import positive

if TYPE_CHECKING:
    import torch

    from ramet.kernels.cpu.ops import CpuOps

VALUE_HEADS, SIZE, TAPS = 32, 128, 4  # of Qwen3-Next, which has half as many heads of keys
STEPS = (1, 8, 32, 256)  # tokens of a step; and the whole prompt
OPERATIONS = 4  # of each number of a state, for a token
DTYPES = ("float32", "bfloat16")


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench delta", description="Layers with a state against the machine.")
    p.add_argument("--input-len", type=positive, default=1024, help="tokens of a prompt, default 1024")
    p.add_argument("--rounds", type=positive, default=5, help="of which the median counts; default 5")
    p.add_argument("--heads", type=positive, default=VALUE_HEADS, help=f"of values, default {VALUE_HEADS}")
    p.add_argument("--num-threads", type=positive, default=len(os.sched_getaffinity(0)), help="default: one per core")
    p.add_argument("--output-file", type=Path, default=report.results_file("delta"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    from ramet.kernels.cpu.build import load_library
    from ramet.kernels.cpu.limits import measure
    from ramet.kernels.cpu.ops import CpuOps

    ops = CpuOps(load_library(), options.num_threads)
    flops = measure(ops.library, ops.threads, tiles=False).float32_flops
    min_s = 2 * OPERATIONS * options.heads * SIZE * SIZE / flops  # of a token
    record: dict[str, Any] = {name: rates(ops, name, options, min_s) for name in DTYPES}
    sizes = {"key_heads": options.heads // 2, "value_heads": options.heads, "size": SIZE, "input": options.input_len}
    made = stamp.stamp(stamp.command_line("delta", argv))
    record |= {"float32_flops": flops, "threads": ops.threads}
    report.append_line(options.output_file, {"bench": "delta", **made, **sizes, **record})
    return 0


def rates(ops: "CpuOps", dtype: str, options: argparse.Namespace, min_s: float) -> dict[str, dict[str, float]]:
    """Of steps of so many tokens, tokens/s; prints them."""
    layer = Layer(ops, dtype, options.heads, options.input_len)
    cases = [str(step) for step in (*STEPS, options.input_len) if step <= options.input_len]
    seconds: dict[str, list[float]] = {step: [] for step in cases}
    for number in range(options.rounds + 1):
        for step in turned(cases, number):
            seconds[step] += [layer.compute_s(int(step))] if number else []  # the first round faults pages in
    found: dict[str, dict[str, float]] = {}
    for step, each in seconds.items():
        rate = options.input_len / statistics.median(each)
        found[step] = {"tokens_per_s": round(rate, 1), "of_limit": round(rate * min_s, 3)}
        print(f"{dtype:<9} steps of {step:>5} {rate:>10.0f} tokens/s {rate * min_s:>6.0%} of the limit", flush=True)
    return found


class Layer:
    """One of random numbers, and a prompt's projections."""

    def __init__(self, ops: "CpuOps", dtype: str, heads: int, tokens: int) -> None:
        import torch

        from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights

        self._of = DeltaShape(heads // 2, heads, SIZE, SIZE, TAPS)
        chance, kind = torch.Generator().manual_seed(0), getattr(torch, dtype)

        def random(*shape: int) -> "torch.Tensor":
            return torch.randn(shape, generator=chance)

        self._ops, self._tokens, channels = ops, tokens, self._of.channels
        conv, decay, bias, norm = (
            random(channels, 1, TAPS).to(kind), random(heads), random(heads), random(SIZE).to(kind)
        )  # fmt: skip
        self._weights = DeltaWeights(conv, decay, bias, norm, 1e-6)
        last = torch.zeros(2, channels, TAPS - 1, dtype=kind)
        self._states = DeltaStates(last, torch.zeros(2, heads, SIZE, SIZE))
        self._x, self._gates = random(tokens, self._of.inputs).to(kind), random(tokens, 2 * heads).to(kind)

    def compute_s(self, step: int) -> float:
        """The whole prompt, so many tokens at a time."""
        from ramet.kernels.reference_delta import StateRows

        parts = [(start, min(step, self._tokens - start)) for start in range(0, self._tokens, step)]
        columns = [[np.array([x], np.int32) for x in (1, num, start + num)] for start, num in parts]
        rows = [StateRows(place, num, length) for place, num, length in columns]
        started = time.perf_counter()
        for (start, num), at in zip(parts, rows, strict=True):
            x, gates = self._x[start : start + num], self._gates[start : start + num]
            self._ops.delta_net(x, gates, self._of, self._weights, self._states, at)
        return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
