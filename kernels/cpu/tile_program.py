"""The process that tries tile registers: argument 1 is the library. Exit status 1: they compute something else."""

import sys
from ctypes import CDLL, addressof

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu.declarations import native
from ramet.kernels.cpu.structs import AttentionPlan, ScoreRule

Numbers = npt.NDArray[np.uint16]  # bfloat16
BFLOAT16, TILES = 1, 2  # as vector.h and linear.cpp number them


def layers_are_alike(library: CDLL, rng: np.random.Generator) -> bool:
    """A linear layer [T, N] by [M, N], with and without tile registers."""
    num, num_in, num_out = 37, 130, 70
    choose, linear = native(library, "choose_linear"), native(library, "linear")
    x, weight = _random(rng, num, num_in), _random(rng, num_out, num_in)
    packed = np.zeros(native(library, "packed_size")(num_out, num_in), np.uint16)
    native(library, "pack")(BFLOAT16, weight.ctypes.data, num_in, num_out, num_in, packed.ctypes.data, 1)
    found = []
    for arithmetic in (0, TILES):
        choose(arithmetic, arithmetic, 0)
        out = np.zeros((num, num_out), np.float32)
        linear(
            BFLOAT16, x.ctypes.data, num_in, packed.ctypes.data, None, out.ctypes.data, num_out, num, num_in, num_out,
            True, 2,
        )  # fmt: skip
        found.append(out)
    plain, by_tiles = found
    return np.allclose(plain, by_tiles, rtol=1e-3, atol=1e-3)


def attention_is_alike(library: CDLL, rng: np.random.Generator) -> bool:
    """Attention of the last T of K keys, with and without tile registers."""
    heads, head_dim, num_keys, num = 2, 80, 70, 40
    choose, attend = native(library, "choose_attention"), native(library, "attention")
    q, keys, values = (_random(rng, tokens, heads, head_dim) for tokens in (num, num_keys, num_keys))
    ends = range(num_keys - num + 1, num_keys + 1)
    given = [0, num, 0, 0, num_keys], range(num), ends, ends, [-1] * num, [0], range(num_keys)
    columns = [np.array(column, np.int32) for column in given]
    addresses = (column.ctypes.data for column in columns)
    plan = AttentionPlan(*addresses, num_keys, None, None, 1, 0, heads, heads, head_dim, 1)
    rule = ScoreRule(head_dim**-0.5, 0, 0, None)
    found = []
    for tiles in (0, 1):
        choose(0, tiles)
        out = np.zeros((num, heads, head_dim), np.uint16)
        attend(
            addressof(plan), addressof(rule), BFLOAT16, BFLOAT16, q.ctypes.data, heads * head_dim, keys.ctypes.data,
            values.ctypes.data, out.ctypes.data,
        )  # fmt: skip
        found.append((out.astype(np.uint32) << 16).view(np.float32))
    plain, by_tiles = found
    return bool(plain.any()) and np.allclose(plain, by_tiles, rtol=2e-2, atol=2e-2)


def _random(rng: np.random.Generator, *shape: int) -> Numbers:
    """The upper halves of float32"""
    return (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


if __name__ == "__main__":
    loaded, generator = CDLL(sys.argv[1]), np.random.default_rng(0)
    sys.exit(not (layers_are_alike(loaded, generator) and attention_is_alike(loaded, generator)))
