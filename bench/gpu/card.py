"""What a card can do, measured: the bandwidth of a copy and the rate of a matrix product, and how kernels are timed.

Bandwidth counts bytes read and written. Everything is timed by replays of a CUDA graph, so no launch is waited for.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ramet.kernels.triton_there import tl, triton

COPIED_BYTES = 4 << 30
SIDE = 8192  # of the matrices
LAUNCHES = 10  # in a graph
ROUNDS = 7
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class GpuCard:
    name: str
    copy_bytes_per_s: float  # read and written
    read_bytes_per_s: float
    flops_per_s: float  # bfloat16

    def shown(self) -> str:
        copy, read, flops = (each / 1e12 for each in (self.copy_bytes_per_s, self.read_bytes_per_s, self.flops_per_s))
        return f"{self.name}: copy {copy:.2f} TB/s, read {read:.2f} TB/s, bf16 {flops:.0f} TFLOP/s"


def seconds(run: Callable[[], object], launches: int = LAUNCHES) -> float:
    """Of one run: the median of some replays of several. Without a card, where parts are only tried: of one run."""
    if DEVICE.type == "cpu":
        began = time.perf_counter()
        run()
        return time.perf_counter() - began
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()  # compiles what is not yet
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            run()
    graph.replay()
    found = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1000 / launches)
    return statistics.median(found)


@triton.jit  # type: ignore[untyped-decorator]
def _copy(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at))


@triton.jit  # type: ignore[untyped-decorator]
def _read(source, target, each, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = tl.zeros((BLOCK,), tl.int32)
    start = tl.program_id(0).to(tl.int64) * each * BLOCK
    for i in range(each):
        total += tl.load(source + start + i * BLOCK + tl.arange(0, BLOCK))
    tl.store(target + tl.program_id(0), tl.sum(total, axis=0))


def measure_card() -> GpuCard:
    """The best of two ways to copy. Numbers are random: constant ones take less power, so clocks stay higher."""
    num = COPIED_BYTES // 4
    source, target = (torch.randint(1 << 30, (num,), dtype=torch.int32, device="cuda") for _ in range(2))
    copied = seconds(lambda: target.copy_(source), 3)
    by_kernel = seconds(lambda: _copy[(num // 4096,)](source, target, BLOCK=4096, num_warps=8), 3)
    read = seconds(lambda: _read[(num // 65536,)](source, target, 16, BLOCK=4096, num_warps=8), 3)
    a, b = (torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    multiplied = seconds(lambda: a @ b)
    copy_rate, read_rate = 2 * COPIED_BYTES / min(copied, by_kernel), COPIED_BYTES / read
    return GpuCard(torch.cuda.get_device_name(), copy_rate, read_rate, 2 * SIDE**3 / multiplied)
