"""The C++ kernels of a CPU, with the arithmetic that was measured to be fast on this machine. Knows no model.

Without a C++ compiler torch serves in their place, slower, and the log says so.
"""

import logging
import time
from ctypes import CDLL
from functools import cache

import torch

from ramet.kernels.cpu import measured
from ramet.kernels.cpu.build import NoCompiler, WrongKernels, load_library
from ramet.kernels.cpu.declarations import native
from ramet.kernels.cpu.limits import measure_all
from ramet.kernels.cpu.measured import ARITHMETICS, Measured
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.cpu.tile_check import tiles_work
from ramet.runtime.errors import ConfigError

log = logging.getLogger("ramet")
MEASUREMENTS = 5  # of which the best counts


def compiled_ops(threads: int) -> CpuOps | None:
    """The C++ kernels for so many threads, with the arithmetic that was measured to be fast; None without them."""
    library = compiled_library()
    if library is None:
        return None
    use(library, machine(library, threads))
    return CpuOps(library, threads)


@cache
def compiled_library() -> CDLL | None:
    """Compiled on the first call on a machine."""
    try:
        return load_library()
    except WrongKernels as error:
        raise ConfigError(str(error)) from None
    except (NoCompiler, OSError) as error:
        log.warning("no C++ kernels, torch runs in their place (slower): %s", error)
        return None


@cache
def machine(library: CDLL, threads: int) -> Measured:
    """Measured on the first call on a machine, and kept."""
    found = measured.read(threads) or measure(library, threads)
    log.info("this machine: %s", found)
    return found


def measure(library: CDLL, threads: int) -> Measured:
    """Now, and kept for later starts."""
    log.info("measuring this machine, once for these kernels and %d thread%s", threads, "s" * (threads > 1))
    found = measure_all(library, threads, tiles=tiles_work(library))
    measured.write(found)
    return found


def use(library: CDLL, found: Measured) -> None:
    """For the whole process."""
    chosen = found.choice
    native(library, "choose_linear")(ARITHMETICS.index(chosen.few), ARITHMETICS.index(chosen.many), chosen.at)
    native(library, "choose_attention")(int(found.limits.dots_pay), int(found.limits.tiles_pay))


def float32_is_faster(dtype: torch.dtype, tokens: int = 32, size: int = 1024) -> bool:
    """Of torch on this CPU, measured now: by half, so that memory is not given up for nothing."""
    best = {}
    for each in (dtype, torch.float32):
        x, weight = torch.ones(tokens, size, dtype=each), torch.ones(size, size, dtype=each)
        seconds = []
        for _ in range(MEASUREMENTS):
            started = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            seconds.append(time.perf_counter() - started)
        best[each] = min(seconds)
    return best[dtype] > 1.5 * best[torch.float32]
