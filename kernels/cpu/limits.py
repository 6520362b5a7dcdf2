"""What this machine can do at most, measured now: bytes read and products made a second. Good for some minutes."""

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ramet.kernels.cpu.memory import huge_empty
from ramet.kernels.cpu.native import native

ROUNDS = 5  # of each measurement, of which the best counts: what disturbs only slows
READ_BYTES = 1 << 28
LOOP_S = 0.05  # that a loop of products takes at least


@dataclass(frozen=True, slots=True)
class Limits:
    threads: int
    read_bytes_per_s: float
    float32_flops: float  # a product and its sum are two
    tile_flops: float  # of bfloat16; 0 without tile registers

    @property
    def flops(self) -> float:
        return max(self.float32_flops, self.tile_flops)


def measure(library: ctypes.CDLL, threads: int, read_bytes: int = READ_BYTES) -> Limits:
    """In less than two seconds."""
    read = native(library, "read", "pnpi")
    data, sinks = huge_empty((read_bytes,), torch.uint8).zero_(), torch.ones(max(4 * threads, read_bytes >> 18))
    seconds = min(_timed(lambda: read(data.data_ptr(), read_bytes, sinks.data_ptr(), threads)) for _ in range(ROUNDS))
    float32 = _products_per_s(library, "multiply", "products_of_round", sinks, threads)
    tiles = _products_per_s(library, "multiply_by_tiles", "products_of_tiles", sinks, threads)
    return Limits(threads, read_bytes / seconds, 2 * float32, 2 * tiles)


def _products_per_s(library: ctypes.CDLL, name: str, size: str, sinks: torch.Tensor, threads: int) -> float:
    loop, num = native(library, name, "npi"), getattr(library, f"ramet_{size}")
    num.restype = ctypes.c_int64
    products = int(num()) * threads
    if not products:
        return 0.0

    def run(rounds: int) -> float:
        return _timed(lambda: loop(rounds, sinks.data_ptr(), threads))

    rounds = 1000
    while run(rounds) < LOOP_S:
        rounds *= 2
    return products * rounds / min(run(rounds) for _ in range(ROUNDS))


def _timed(act: Callable[[], None]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started
