"""What the Triton kernels of several modules share: how they round, cap and pad, and whether they are interpreted."""

from ramet.kernels import reference
from ramet.kernels.triton_there import tl, triton

LOG2_E = 1.4426950408889634
LARGEST_FP8 = tl.constexpr(reference.LARGEST_FP8)
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

    The interpreter loses a bit where rounding to 8 bits carries into the exponent, and a NaN, so it rounds here.
    """
    if like.dtype.element_ty == tl.float8e4nv:
        x = x.to(tl.float32)
        x = tl.where(x == x, tl.minimum(tl.maximum(x, -LARGEST_FP8), LARGEST_FP8), x)  # a NaN stays one
        if INTERPRETED:
            bits = x.to(tl.int32, bitcast=True)
            bits = (bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000  # three bits behind the first
            small = x + 24576.0 - 24576.0  # 1.5 * 2^23 of the smallest step, 2^-9
            x = tl.where(tl.abs(x) < 0.015625, small, bits.to(tl.float32, bitcast=True))
            kept = x.to(tl.float8e4nv).to(tl.int8, bitcast=True)
            return tl.where(x == x, kept, 127).to(tl.int8).to(tl.float8e4nv, bitcast=True)
    return x.to(like.dtype.element_ty)


@triton.jit  # type: ignore[untyped-decorator]
def _take_in(  # type: ignore[no-untyped-def]
    queries, k, v, hidden, best, mass, sums, scale, cap,
    MASKED: tl.constexpr, CAPPED: tl.constexpr, LOG2_E: tl.constexpr,
):  # fmt: skip
    """A tile of keys and values more."""
    scores = tl.dot(queries, tl.trans(k), input_precision="ieee") * scale
    if CAPPED:
        scores = _capped(scores, cap)
    return _weigh(scores, v, hidden, best, mass, sums, MASKED, LOG2_E)


@triton.jit  # type: ignore[untyped-decorator]
def _weigh(scores, v, hidden, best, mass, sums, MASKED: tl.constexpr, LOG2_E: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of values more. Queries that see none of it, and saw none before, stay empty."""
    scores = scores * LOG2_E
    if MASKED:
        scores = tl.where(hidden, float("-inf"), scores)
    higher = tl.maximum(best, tl.max(scores, axis=1))
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores - base[:, None])
    kept = tl.exp2(best - base)
    mass = mass * kept + tl.sum(weights, axis=1)
    sums = tl.dot(weights.to(v.dtype), v, sums * kept[:, None], input_precision="ieee")
    return higher, mass, sums


@triton.jit  # type: ignore[untyped-decorator]
def _merged(  # type: ignore[no-untyped-def]
    partials, sums, place, first, end, lanes, dims, is_lane, within,
    GROUP: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Parts [first, end) of a row of the batch, in their order: each has GROUP rows of D numbers behind `place`."""
    best = tl.full(lanes.shape, float("-inf"), tl.float32)
    mass = tl.zeros(lanes.shape, tl.float32)
    sums_of = tl.zeros(within.shape, tl.float32)
    for each in tl.range(first, end, num_stages=STAGES):
        lse = sums + (place + each) * GROUP + lanes  # not from a cache: other multiprocessors wrote it
        one = tl.load(lse, mask=is_lane, other=0.0, cache_modifier=".cg")
        parts = partials + ((place + each) * GROUP + lanes[:, None]) * D + dims[None, :]
        part = tl.load(parts, mask=within, other=0.0, cache_modifier=".cg")
        higher = tl.maximum(best, one)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        kept, weight = tl.exp2(best - base), tl.exp2(one - base)
        sums_of = sums_of * kept[:, None] + weight[:, None] * part
        mass = mass * kept + weight
        best = higher
    return best, mass, sums_of


@triton.jit  # type: ignore[untyped-decorator]
def _tile(base, places, in_head, valid, WHOLE_HEAD: tl.constexpr, ALL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keys or values [BLOCK, D padded]."""
    if WHOLE_HEAD and ALL:
        x = tl.load(base + places)
    elif ALL:
        x = tl.load(base + places, mask=in_head[None, :], other=0.0)
    else:
        x = tl.load(base + places, mask=valid[:, None] & in_head[None, :], other=0.0)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def _as_kept(x, pool, like, INTERPRETED: tl.constexpr):  # type: ignore[no-untyped-def]
    """New keys or values in the type of `like`, rounded as the pool has them."""
    if pool.dtype.element_ty == tl.float8e4nv:
        x = _stored(x, pool, INTERPRETED)
    return x.to(like.dtype)


def padded(size: int) -> int:
    """The side of a tile that holds `size`: a matrix instruction has 16."""
    return max(16, triton.next_power_of_2(size))
