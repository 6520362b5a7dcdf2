"""What the Triton kernels of several modules share: how they round, cap and pad, and whether they are interpreted."""

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
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


def padded(size: int) -> int:
    """Of a tile's side: a matrix instruction has 16."""
    return max(16, triton.next_power_of_2(size))
