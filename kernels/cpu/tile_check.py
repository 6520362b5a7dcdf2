"""Whether tile registers compute what they should, tried in a process of its own: flags of a CPU promise too much.

Knows no torch: the process loads numpy and the library, multiplies with and without them, and compares.
"""

import ctypes
import subprocess
import sys
from functools import cache

TILES = 2  # as linear.cpp numbers it
TIMEOUT_S = 60
PROGRAM = """
import ctypes, sys
import numpy as np
library = ctypes.CDLL(sys.argv[1])
T, N, M = 37, 130, 70
p, n, i = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
library.ramet_packed_size.argtypes, library.ramet_packed_size.restype = (n, n), n
library.ramet_pack.argtypes = (i, p, n, n, n, p, i)
library.ramet_linear.argtypes = (i, p, n, p, p, p, n, n, n, n, i, i)
library.ramet_choose_linear.argtypes = (i, i, n)
rng = np.random.default_rng(0)
made = lambda *shape: (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
x, w = made(T, N), made(M, N)
packed = np.zeros(library.ramet_packed_size(M, N), np.uint16)
library.ramet_pack(1, w.ctypes.data, N, M, N, packed.ctypes.data, 1)
found = []
for arithmetic in (0, 2):
    library.ramet_choose_linear(arithmetic, arithmetic, 0)
    out = np.zeros((T, M), np.float32)
    library.ramet_linear(1, x.ctypes.data, N, packed.ctypes.data, None, out.ctypes.data, M, T, N, M, 1, 2)
    found.append(out)
sys.exit(not np.allclose(*found, rtol=1e-3, atol=1e-3))
"""


@cache
def tiles_work(library: ctypes.CDLL) -> bool:
    """False where there are none."""
    if not library.ramet_has_arithmetic(TILES):
        return False
    command = [sys.executable, "-c", PROGRAM, library._name]
    try:
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
