"""What the Triton kernels of several modules share: how they round, cap and pad, and whether they are interpreted."""

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
LARGEST_FP8 = tl.constexpr(448.0)  # of e4m3
INTERPRETED = bool(triton.knobs.runtime.interpret)  # bfloat16 is computed as an integer there, so it is widened first


@triton.jit
def _capped(scores, cap):  # type: ignore[no-untyped-def]
    """cap * tanh(scores / cap). Of large numbers too: exp goes to infinity or to 0, and the result to cap or -cap."""
    return cap - 2 * cap / (tl.exp(2 * scores / cap) + 1)


@triton.jit  # type: ignore[untyped-decorator]
def _rounded(x, like, INTERPRETED: tl.constexpr):  # type: ignore[no-untyped-def]
    """x float32 as the dtype of `like` holds it, in float32. The interpreter cuts a bfloat16 off, so it rounds here."""
    if INTERPRETED and like.dtype.element_ty == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        return bits.to(tl.float32, bitcast=True)
    return x.to(like.dtype.element_ty).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _stored(x, like, INTERPRETED: tl.constexpr):  # type: ignore[no-untyped-def]
    """x as the pool of `like` holds it. What is beyond the largest number of 8 bits becomes that.

    The interpreter loses a bit where rounding to 8 bits carries into the exponent, so it rounds here.
    """
    if like.dtype.element_ty == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -LARGEST_FP8), LARGEST_FP8)
        if INTERPRETED:
            bits = x.to(tl.int32, bitcast=True)
            bits = (bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000  # three bits behind the first
            small = x + 24576.0 - 24576.0  # 1.5 * 2^23 of the smallest step, 2^-9
            x = tl.where(tl.abs(x) < 0.015625, small, bits.to(tl.float32, bitcast=True))
    return x.to(like.dtype.element_ty)


def padded(size: int) -> int:
    """Of a tile's side: a matrix instruction has 16."""
    return max(16, triton.next_power_of_2(size))
