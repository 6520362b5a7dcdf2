"""Attention to latents, or to what they are expanded to, by compiled kernels: what latent.cpp is called with.

T tokens, H heads, G heads of keys (1 or H), D numbers of a key, W of a value, S rows that hold keys.
"""

from ctypes import Structure, addressof, c_int64, c_void_p

from torch import Tensor

from ramet.kernels.cpu.experts import DTYPES
from ramet.kernels.cpu.ops import CpuOps, Planner


class Operand(Structure):
    """Field for field the struct of latent.cpp."""

    _fields_ = (("at", c_void_p), ("row", c_int64), ("head", c_int64), ("width", c_int64))

    @classmethod
    def of(cls, x: Tensor) -> "Operand":
        """x [rows, heads, width] with both of the first strided; one head counts for all."""
        return cls(x.data_ptr(), x.stride(0), 0 if x.shape[1] == 1 else x.stride(1), x.shape[2])


class Operands(Structure):
    """Field for field the struct of latent.cpp."""

    _fields_ = (
        ("q", Operand),
        ("q_turned", Operand),
        ("keys", Operand),
        ("keys_turned", Operand),
        ("values", Operand),
        ("out", c_void_p),
    )


def attend_to_latents(
    ops: CpuOps,
    planner: Planner,
    scale: float,
    q: tuple[Tensor, Tensor],
    keys: tuple[Tensor, Tensor],
    values: Tensor,
    out: Tensor,
) -> None:
    """WRITES out [T, H, W], contiguous, for the tokens of the plan. All are of one dtype.

    q and keys are the parts that stay and those that are rotated: [T, H, ...] and [S, G, ...], the second ones of keys
    for all heads [S, 1, ...]; values [S, G, W]. What starts where the keys do is a part of them.
    """
    assert out.is_contiguous() and len({x.dtype for x in (*q, *keys, values, out)}) == 1
    operands = Operands(*(Operand.of(x) for x in (*q, *keys, values)), out.data_ptr())
    ops.keep(operands)
    ops.call("latent_attention")(planner.address, scale, DTYPES[out.dtype], addressof(operands))
