"""Measures what this machine can do at most, bytes read and products made a second, and how fast a layer is there.

As good as the minutes in which it is done. measured.py keeps it.
"""

import ctypes
import time
from collections.abc import Callable

import torch

from ramet.kernels.cpu.measured import ARITHMETICS, TOKENS, Limits, Measured
from ramet.kernels.cpu.memory import huge_empty
from ramet.kernels.cpu.native import native

ROUNDS = 5  # of each measurement, of which the best counts: what disturbs only slows
READ_BYTES = 1 << 28
LOOP_S = 0.05  # that a loop of products takes at least
LAYER = 2048, 16384  # in and out: more bytes than caches hold
BFLOAT16 = 1


def measure(library: ctypes.CDLL, threads: int, *, tiles: bool, read_bytes: int = READ_BYTES) -> Limits:
    """In less than two seconds. `tiles`: tile registers work here, if there are any; else they are not touched."""
    read = native(library, "read", "pnpi")
    data, sinks = huge_empty((read_bytes,), torch.uint8).zero_(), torch.ones(max(4 * threads, read_bytes >> 18))
    seconds = min(_timed(lambda: read(data.data_ptr(), read_bytes, sinks.data_ptr(), threads)) for _ in range(ROUNDS))
    float32 = _products_per_s(library, "multiply", "products_of_round", sinks, threads)
    dots = _products_per_s(library, "multiply_by_dots", "products_of_dots", sinks, threads)
    by_tiles = _products_per_s(library, "multiply_by_tiles", "products_of_tiles", sinks, threads) if tiles else 0.0
    return Limits(threads, read_bytes / seconds, 2 * float32, 2 * dots, 2 * by_tiles)


def int8_flops(library: ctypes.CDLL, threads: int) -> float:
    """Twice the products of bytes a second, by the operation that layers over 8-bit weights are computed with."""
    return 2 * _products_per_s(library, "multiply_bytes", "products_of_bytes", torch.ones(4 * threads), threads)


def measure_all(library: ctypes.CDLL, threads: int, *, tiles: bool) -> Measured:
    """The limits, and a layer with each arithmetic that there is. In about two seconds."""
    num_in, num_out = LAYER
    weights = huge_empty((num_in * num_out,), torch.bfloat16).fill_(1.0)
    x, out = (
        torch.ones(TOKENS[-1], num_in, dtype=torch.bfloat16),
        torch.empty(TOKENS[-1], num_out, dtype=torch.bfloat16),
    )
    choose, linear = native(library, "choose_linear", "iin"), native(library, "linear", "ipnpppnnnnii")
    usable = [name for name in ARITHMETICS if tiles or name != "tiles"]
    numbers = {name: i for i, name in enumerate(ARITHMETICS) if name in usable and library.ramet_has_arithmetic(i)}
    seconds = {name: [float("inf")] * len(TOKENS) for name in numbers}
    addresses = x.data_ptr(), num_in, weights.data_ptr(), None, out.data_ptr(), num_out
    for _ in range(ROUNDS):
        for name, number in numbers.items():
            choose(number, number, 0)
            for i, tokens in enumerate(TOKENS):
                sizes = tokens, num_in, num_out, 0, threads
                took = _timed(lambda sizes=sizes: linear(BFLOAT16, *addresses, *sizes))  # type: ignore[misc]
                seconds[name][i] = min(seconds[name][i], took)
    choose(0, 0, 0)
    return Measured(measure(library, threads, tiles=tiles), seconds)


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
