"""The CPU threads that OpenMP keeps for each thread that has run a parallel region.

libgomp lets threads spin at a barrier only while the process has no more OpenMP threads than cores. Otherwise they
sleep at each of the hundreds of barriers of a step. So a pool that waits in one thread slows the steps that run in
another: with two pools on two cores, a decoding step of one request took 2.4 times as long.
"""

import ctypes

PAUSE_SOFT = 1  # omp_pause_soft of OpenMP 5: settings stay
LOADED = ctypes.CDLL(None)  # what this process has loaded, at the time of a look-up


def release_pool() -> None:
    """End the pool of the calling thread; its next parallel region starts another. Nothing before torch is loaded."""
    pause = getattr(LOADED, "omp_pause_resource_all", None)
    if pause is not None:
        pause(PAUSE_SOFT)
