"""Measures what this machine can do at most, bytes read and products made a second, and how fast a layer is there.

As good as the minutes in which it is done. measured.py keeps it.
"""

import ctypes
import time
from collections.abc import Callable
from functools import partial

import torch

from ramet.kernels.cpu.declarations import Native
from ramet.kernels.cpu.measured import ARITHMETICS, TOKENS, MachineLimits, Measured
from ramet.kernels.cpu.memory import huge_empty
from ramet.kernels.cpu.native import DTYPES, Natives

ROUNDS = 5  # of each measurement, of which the best counts: what disturbs only slows
READ_BYTES = 1 << 28
LOOP_S = 0.05  # that a loop of products takes at least
LAYER = 2048, 16384  # in and out: more bytes than caches hold


def measure(library: ctypes.CDLL, threads: int, *, tiles: bool, read_bytes: int = READ_BYTES) -> MachineLimits:
    """In less than two seconds. `tiles`: tile registers work here, if there are any; else they are not touched."""
    native = Natives(library)
    data, sinks = huge_empty((read_bytes,), torch.uint8).zero_(), torch.ones(max(4 * threads, read_bytes >> 18))
    seconds = min(_timed(lambda: native.read(data, read_bytes, sinks, threads)) for _ in range(ROUNDS))
    float32 = _products_per_s(native.multiply, native.products_of_round(), threads)
    dots = _products_per_s(native.multiply_by_dots, native.products_of_dots(), threads)
    by_tiles = _products_per_s(native.multiply_by_tiles, native.products_of_tiles(), threads) if tiles else 0.0
    return MachineLimits(threads, read_bytes / seconds, 2 * float32, 2 * dots, 2 * by_tiles)


def int8_flops(library: ctypes.CDLL, threads: int) -> float:
    """Twice the products of bytes a second, by the operation that layers over 8-bit weights are computed with."""
    native = Natives(library)
    return 2 * _products_per_s(native.multiply_bytes, native.products_of_bytes(), threads)


def measure_all(library: ctypes.CDLL, threads: int, *, tiles: bool) -> Measured:
    """The limits, and a layer with each arithmetic that there is. In about two seconds."""
    native, (num_in, num_out) = Natives(library), LAYER
    weights = huge_empty((num_in * num_out,), torch.bfloat16).fill_(1.0)
    x = torch.ones(TOKENS[-1], num_in, dtype=torch.bfloat16)
    out = torch.empty(TOKENS[-1], num_out, dtype=torch.bfloat16)

    def multiply(tokens: int) -> None:
        kind = DTYPES[x.dtype]
        native.linear(kind, x, num_in, weights, None, out, num_out, tokens, num_in, num_out, False, threads)

    usable = [name for name in ARITHMETICS if tiles or name != "tiles"]
    numbers = {name: i for i, name in enumerate(ARITHMETICS) if name in usable and native.has_arithmetic(i)}
    seconds = {name: [float("inf")] * len(TOKENS) for name in numbers}
    for _ in range(ROUNDS):
        for name, number in numbers.items():
            native.choose_linear(number, number, 0)
            for i, tokens in enumerate(TOKENS):
                seconds[name][i] = min(seconds[name][i], _timed(partial(multiply, tokens)))
    native.choose_linear(0, 0, 0)
    return Measured(measure(library, threads, tiles=tiles), seconds)


def _products_per_s(loop: Native, products: int, threads: int) -> float:
    """`loop` makes so many in a round on each thread."""
    if not products:
        return 0.0
    sinks = torch.ones(4 * threads)

    def run(rounds: int) -> float:
        return _timed(lambda: loop(rounds, sinks, threads))

    rounds = 1000
    while run(rounds) < LOOP_S:
        rounds *= 2
    return threads * products * rounds / min(run(rounds) for _ in range(ROUNDS))


def _timed(act: Callable[[], None]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started
