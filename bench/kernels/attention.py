"""`ramet bench attention`: what one layer's attention reads and multiplies a second, beside what the machine can do.

Decoding steps of different rows, contexts, heads and storage, over slots that are scattered over a pool or lie in
order: bytes of keys and values a second, as a share of the read limit that the same run measures
(kernels/cpu/limits.py). Steps that extend: operations a second (a product and its sum are two) as a share of the
multiply limit. Then what each doubling of context or rows costs. The layers of a case lie one behind the other in more
memory than the caches hold, as those of a model do, and are computed in turn.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ramet.bench import report, stamp
from ramet.bench.values import positive

if TYPE_CHECKING:
    import torch

    from ramet.kernels.cpu.measured import MachineLimits
    from ramet.kernels.cpu.ops import CpuOps

MIN_BYTES = 1 << 28  # of keys and values of all layers of a case
MAX_LAYERS = 64
EXTENDED_LAYERS = 2  # of a case that extends, whose products take longer than what it reads
GROWTHS = ("context", "rows")


@dataclass(frozen=True)
class AttentionCase:
    """`rows` rows of `context` tokens; the last `new` of each are computed, the first `shared` are the same for all."""

    rows: int = 32
    context: int = 324
    new: int = 1
    shared: int = 0
    heads: int = 12
    kv_heads: int = 12
    head_dim: int = 64
    cache: str = "bfloat16"
    scattered: bool = True

    @property
    def tokens(self) -> int:
        """That are in the pool."""
        return self.shared + self.rows * (self.context - self.shared)

    @property
    def pairs(self) -> int:
        """Of a query and a key that it sees."""
        cached = self.context - self.new
        return self.rows * (self.new * cached + self.new * (self.new + 1) // 2)

    @property
    def flops(self) -> int:
        return 4 * self.heads * self.head_dim * self.pairs

    @property
    def name(self) -> str:
        words = f"{self.rows} x {self.context}" + (f", {self.new} new" if self.new > 1 else "")
        words += f", {self.shared} shared" if self.shared else ""
        order = "scattered" if self.scattered else "in order"
        return f"{words}, {self.heads}/{self.kv_heads} heads of {self.head_dim}, {self.cache}, {order}"


MODEL = AttentionCase()
DECODES = (
    MODEL, replace(MODEL, scattered=False), replace(MODEL, cache="float32"), replace(MODEL, cache="int8"),
    *(replace(MODEL, context=context, scattered=each) for context in (128, 1024, 8192) for each in (True, False)),
    *(replace(MODEL, rows=rows, context=1024) for rows in (1, 2, 8, 64)),
    replace(MODEL, kv_heads=3), replace(MODEL, heads=16, kv_heads=2),
    replace(MODEL, heads=16, kv_heads=16, head_dim=128), replace(MODEL, heads=32, kv_heads=8, head_dim=128),
    replace(MODEL, context=8192, cache="int8"),
)  # fmt: skip
EXTENDS = (
    replace(MODEL, rows=1, context=8192, new=8192), replace(MODEL, rows=1, context=2048, new=2048),
    replace(MODEL, rows=1, context=1056, new=32), replace(MODEL, rows=64, context=1056, new=32, shared=1024),
    replace(MODEL, rows=64, context=1056, new=1, shared=1024), replace(MODEL, rows=8, context=256, new=256),
    replace(MODEL, rows=1, context=2048, new=2048, heads=32, kv_heads=8),
    replace(MODEL, rows=1, context=2048, new=2048, cache="int8"),
)  # fmt: skip
GROWING = {
    "context": tuple(replace(MODEL, context=128 << i) for i in range(7)),
    "rows": tuple(replace(MODEL, rows=1 << i, context=1024) for i in range(7)),
}


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench attention", description="Attention against the machine's limits.")
    p.add_argument("--only", choices=("decode", "extend", "growth"), help="default: all three")
    p.add_argument("--rounds", type=positive, default=5, help="of each case, of which the median counts; default 5")
    p.add_argument("--least-mb", type=positive, default=MIN_BYTES >> 20, help="of keys and values of a case's layers")
    p.add_argument("--num-threads", type=positive, default=len(os.sched_getaffinity(0)), help="default: one per core")
    p.add_argument("--first", type=positive, help="so many cases of each kind; default: all")
    p.add_argument(
        "--dots",
        choices=("off", "on"),
        help="bfloat16 in pairs, and no tile registers; default: what the limits say that pays",
    )
    p.add_argument("--output-file", type=Path, default=report.results_file("attention"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    from ramet.kernels.cpu.build import load_library
    from ramet.kernels.cpu.declarations import native
    from ramet.kernels.cpu.ops import CpuOps

    ops = CpuOps(load_library(), options.num_threads)
    bench = Bench(ops, options.rounds, options.least_mb << 20)
    limits = bench.limits()
    with_dots = limits.dots_pay if options.dots is None else options.dots == "on"
    with_tiles = limits.tiles_pay and options.dots is None
    native(ops.library, "choose_attention")(int(with_dots), int(with_tiles))
    record: dict[str, Any] = {kind: {} for kind in ("decode", "extend", "growth") if options.only in (None, kind)}
    for kind, cases in (("decode", DECODES), ("extend", EXTENDS)):
        if kind in record:
            record[kind] = {case.name: bench.shown(case) for case in cases[: options.first]}
    if "growth" in record:
        record["growth"] = {name: bench.growth(GROWING[name][: options.first]) for name in GROWTHS}
    made = stamp.stamp(stamp.command_line("attention", argv))
    record |= {"dots": with_dots, "tiles": with_tiles, "limits": asdict(bench.limits())}
    report.append_line(options.output_file, {"bench": "attention", **made, **record})
    return 0


class Bench:
    """Measures cases over one buffer."""

    def __init__(self, ops: "CpuOps", rounds: int, min_bytes: int) -> None:
        self._ops, self._rounds, self._min_bytes = ops, rounds, min_bytes
        self._best = self._measured()

    def limits(self) -> "MachineLimits":
        """The best of those that were measured until now."""
        return self._best

    def shown(self, case: AttentionCase) -> dict[str, float]:
        seconds, size = self._seconds(case)
        again = self._measured()
        if again.read_bytes_per_s > self._best.read_bytes_per_s:
            self._best = again
        figures = {"us": round(seconds * 1e6, 1), "gb_per_s": round(size / seconds / 1e9, 2)}
        figures |= {"of_read_limit": round(size / seconds / again.read_bytes_per_s, 3)}
        figures |= {"gflops": round(case.flops / seconds / 1e9, 1)}
        figures |= {"of_multiply_limit": round(case.flops / seconds / again.flops, 3)}
        print(
            f"{case.name:<62}{figures['us']:>10.1f} us{figures['gb_per_s']:>8.2f} GB/s{figures['of_read_limit']:>7.0%}"
            f"{figures['gflops']:>9.1f} Gflop/s{figures['of_multiply_limit']:>7.0%}",
            flush=True,
        )
        return figures

    def growth(self, cases: Sequence[AttentionCase]) -> list[float]:
        """What each costs, in times of the one before."""
        seconds = [self._seconds(case)[0] for case in cases]
        ratios = [round(b / a, 2) for a, b in pairwise(seconds)]
        for case, each, ratio in zip(cases, seconds, [None, *ratios], strict=True):
            print(f"{case.name:<62}{each * 1e6:>10.1f} us" + ("" if ratio is None else f"{ratio:>8.2f} x"), flush=True)
        return ratios

    def _measured(self) -> "MachineLimits":
        from ramet.kernels.cpu.limits import measure
        from ramet.kernels.cpu.tile_check import tiles_work

        library = self._ops.library
        return measure(library, self._ops.threads, tiles=tiles_work(library))

    def _seconds(self, case: AttentionCase) -> tuple[float, int]:
        """Of one layer, the median of the rounds; and the bytes of its keys and values."""
        import torch

        from ramet.kernels.cpu.attention import AttentionPlanner
        from ramet.kernels.cpu.structs import ScoreRule

        planner = AttentionPlanner(self._ops.library, case.heads, case.kv_heads, case.head_dim)
        rule, slots = ScoreRule(case.head_dim**-0.5, 0, 0.0), table_of(case)
        layers = list(self._layers(case))
        size = case.tokens * 2 * layers[0][0][0].nbytes
        dtype = torch.float32 if case.cache == "float32" else torch.bfloat16
        q = torch.randn(case.rows * case.new, case.heads, case.head_dim).to(dtype)
        out = torch.empty_like(q)
        rows, lens = np.arange(case.rows, dtype=np.int32), np.full(case.rows, case.context, np.int32)
        self._ops.plan(planner, slots, rows, rows * case.new, np.full(case.rows, case.new, np.int32), lens)
        times = []
        for _ in range(self._rounds + 1):
            started = time.perf_counter()
            for keys, values in layers:
                self._ops.attend(planner, rule, q, keys, values, out)
            times.append((time.perf_counter() - started) / len(layers))
        return statistics.median(times[1:]), size  # the first round faults pages in

    def _layers(self, case: AttentionCase) -> Iterator[tuple["torch.Tensor", "torch.Tensor"]]:
        """Keys and values of each layer, of random numbers."""
        import torch

        from ramet.kernels.cpu.memory import huge_empty
        from ramet.kernels.reference import quantised

        is_int8 = case.cache == "int8"
        dtype = torch.bfloat16 if is_int8 else getattr(torch, case.cache)
        exact = torch.randn(1024, case.kv_heads, case.head_dim).to(dtype)
        some = quantised(exact) if is_int8 else exact
        size, shape = case.tokens * 2 * some[0].nbytes, (case.tokens + 1, *some.shape[1:])
        most = MAX_LAYERS if case.new == 1 else EXTENDED_LAYERS
        for _ in range(min(most, -(-self._min_bytes // size))):
            both = huge_empty(shape, some.dtype), huge_empty(shape, some.dtype)
            for tensor in both:
                for start in range(0, len(tensor), len(some)):
                    tensor[start : start + len(some)] = some[: len(tensor) - start]
            yield both


def table_of(case: AttentionCase) -> "torch.Tensor":
    """[rows, context] int32: a slot from 1 on for each token."""
    import torch

    random = np.random.RandomState(0)
    slots = (random.permutation(case.tokens) if case.scattered else np.arange(case.tokens)).astype(np.int32) + 1
    own = slots[case.shared :].reshape(case.rows, -1)
    return torch.from_numpy(np.hstack([np.broadcast_to(slots[: case.shared], (case.rows, case.shared)), own]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
