"""Whether tile registers compute what they should, tried in a process of its own: flags of a CPU promise too much.

Knows no torch: the process loads numpy and the library, computes a linear layer and attention with and without them,
and compares.
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
same = np.allclose(*found, rtol=1e-3, atol=1e-3)

H, D, K, T = 2, 80, 70, 40
class Plan(ctypes.Structure):
    _fields_ = [(name, p) for name in ("items", "members", "limits", "owns", "partials", "merges", "table")]
    _fields_ += [("table_stride", n), ("partial_out", p), ("partial_lse", p)]
    names = ("num_items", "num_merges", "heads", "kv_heads", "head_dim", "threads")
    _fields_ += list(zip(names, [ctypes.c_int32] * 6))
class Rule(ctypes.Structure):
    _fields_ = [("scale", ctypes.c_float), ("window", ctypes.c_int32), ("softcap", ctypes.c_float), ("sinks", p)]
library.ramet_attention.argtypes = (p, p, i, i, p, n, p, p, p)
q, k, v = made(T, H, D), made(K, H, D), made(K, H, D)
ends = range(K - T + 1, K + 1)
columns = [[0, T, 0, 0, K], range(T), ends, ends, [-1] * T, [0], range(K)]
columns = [np.array(column, np.int32) for column in columns]
plan = Plan(*(column.ctypes.data for column in columns), K, None, None, 1, 0, H, H, D, 1)
found = []
for tiles in (0, 1):
    library.ramet_choose_attention(0, tiles)
    out = np.zeros((T, H, D), np.uint16)
    rule = Rule(D**-0.5, 0, 0, None)
    at = [each.ctypes.data for each in (q, k, v, out)]
    library.ramet_attention(ctypes.byref(plan), ctypes.byref(rule), 1, 1, at[0], H * D, *at[1:])
    found.append((out.astype(np.uint32) << 16).view(np.float32))
sys.exit(not (same and found[0].any() and np.allclose(*found, rtol=2e-2, atol=2e-2)))
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
