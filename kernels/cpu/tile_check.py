"""Whether tile registers compute what they should, tried in a process of its own: flags of a CPU promise too much.

Knows no torch: the process (tile_program.py) loads numpy and the library, computes a linear layer and attention with
and without them, and compares.
"""

import ctypes
import subprocess
import sys
from functools import cache

from ramet.kernels.cpu.declarations import native

TILES = 2  # as linear.cpp numbers it
TIMEOUT_S = 60


@cache
def tiles_work(library: ctypes.CDLL) -> bool:
    """False where there are none."""
    if not native(library, "has_arithmetic")(TILES):
        return False
    command = [sys.executable, "-m", "ramet.kernels.cpu.tile_program", library._name]
    try:
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
