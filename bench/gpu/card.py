"""What a card can do, measured: the bandwidth of a copy and the rate of a matrix product, and how kernels are timed.

Bandwidth counts bytes read and written. Everything is timed by replays of a CUDA graph, so no launch is waited for.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

COPIED_BYTES = 4 << 30
SIDE = 8192  # of the matrices
LAUNCHES = 10  # in a graph
ROUNDS = 7


@dataclass(frozen=True)
class Card:
    name: str
    copy_bytes_per_s: float
    flops_per_s: float  # bfloat16

    def shown(self) -> str:
        return f"{self.name}: copy {self.copy_bytes_per_s / 1e12:.2f} TB/s, bf16 {self.flops_per_s / 1e12:.0f} TFLOP/s"


def seconds(run: Callable[[], object], launches: int = LAUNCHES) -> float:
    """Of one run: the median of some replays of several."""
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


def measure_card() -> Card:
    source = torch.empty(COPIED_BYTES // 2, dtype=torch.bfloat16, device="cuda").normal_()
    target = torch.empty_like(source)
    copied = seconds(lambda: target.copy_(source), 3)
    a, b = (torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    multiplied = seconds(lambda: a @ b)
    return Card(torch.cuda.get_device_name(), 2 * COPIED_BYTES / copied, 2 * SIDE**3 / multiplied)
