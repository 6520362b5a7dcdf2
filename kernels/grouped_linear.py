"""Products of tokens with the experts that they are routed to, on a GPU, in Triton.

Routes are sorted by expert once for a layer, and a tile of a product has routes of one expert alone: which one, each
program finds by the numbers of routes, so nothing waits for the routing and a graph replays it. How many programs there
are depends on the number of tokens, not on where they go. Programs of a few tiles and all outputs run side by side, so
the card's cache serves weights and inputs to several of them. kernels/reference_experts.py holds the oracle.
T tokens, P = T K routes of which route t K + k is token t's k-th, E experts, N in, M out.
"""

import torch
from torch import Tensor

from ramet.kernels.reference_experts import Routes
from ramet.kernels.triton_parts import INTERPRETED, _rounded, padded
from ramet.kernels.triton_there import tl, triton
from ramet.kernels.tuned import GroupedTuning, grouped_tuning, launched, processor_of

ROUTES = 1024  # that are looked at at once
TOGETHER = 8  # tiles of routes whose products with the same outputs lie side by side
SUMMED = 1024  # outputs of a program


@triton.jit(do_not_specialize=["num_routes"])  # type: ignore[untyped-decorator]
def _sort(experts, order, ends, num_routes, ROUTES: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program an expert: it counts routes of experts before it, then writes down its own."""
    own = tl.program_id(0)
    at = tl.arange(0, ROUTES)
    before = tl.zeros((ROUTES,), tl.int32)
    for first in range(0, num_routes, ROUTES):
        found = tl.load(experts + first + at, mask=first + at < num_routes, other=own)
        before += (found < own).to(tl.int32)
    place = tl.sum(before)
    for first in range(0, num_routes, ROUTES):
        found = tl.load(experts + first + at, mask=first + at < num_routes, other=-1)
        mine = (found == own).to(tl.int32)
        tl.store(order + place + tl.cumsum(mine) - 1, first + at, mask=mine > 0)
        place += tl.sum(mine)
    tl.store(ends + own, place)


@triton.jit(do_not_specialize=["num_tiles"])  # type: ignore[untyped-decorator]
def _grouped(  # type: ignore[no-untyped-def]
    x, weight, bias, order, ends, out, num_experts, num_tiles, num_in, num_out,
    PER_TOKEN: tl.constexpr, SCATTER: tl.constexpr, EXPERTS: tl.constexpr, TOKENS: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, STAGES: tl.constexpr, TOGETHER: tl.constexpr, WHOLE: tl.constexpr,
    BIASED: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One program for a tile of routes and one of outputs. `bias` is any tensor without BIASED.

    Of 3 experts with 5, 0 and 20 routes and TOKENS of 16, tiles 0, 1 and 2 are routes 0 to 4, 5 to 20 and 21 to 24 of
    experts 0, 2 and 2; programs of further tiles end. WHOLE: sizes are multiples of a tile's, so nothing is masked.
    """
    across = tl.cdiv(num_out, OUTPUTS)
    of_block = TOGETHER * across  # programs of TOGETHER tiles
    first_tile = tl.program_id(0) // of_block * TOGETHER
    together = tl.minimum(num_tiles - first_tile, TOGETHER)
    within = tl.program_id(0) % of_block
    tile = first_tile + within % together
    outputs = within // together * OUTPUTS + tl.arange(0, OUTPUTS)

    experts = tl.arange(0, EXPERTS)
    there = experts < num_experts
    end = tl.load(ends + experts, mask=there, other=0)
    start = tl.load(ends + experts - 1, mask=there & (experts > 0), other=0)
    tiles = tl.where(there, (end - start + TOKENS - 1) // TOKENS, 0)
    up_to = tl.cumsum(tiles)
    if tile < tl.sum(tiles):
        owns = there & (tile >= up_to - tiles) & (tile < up_to)
        expert = tl.sum(tl.where(owns, experts, 0)).to(tl.int64)
        last = tl.sum(tl.where(owns, end, 0))
        place = tl.sum(tl.where(owns, start + (tile - (up_to - tiles)) * TOKENS, 0)) + tl.arange(0, TOKENS)
        mine = place < last
        route = tl.load(order + place, mask=mine, other=0)
        source = place if SCATTER else route // PER_TOKEN
        target = route if SCATTER else place
        inputs = x + source.to(tl.int64)[:, None] * num_in
        weights = weight + (expert * num_out + outputs)[:, None] * num_in
        sums = tl.zeros((TOKENS, OUTPUTS), tl.float32)
        for first in tl.range(0, num_in, INPUTS, num_stages=STAGES):
            at = first + tl.arange(0, INPUTS)
            if WHOLE:
                left = tl.load(inputs + at[None, :], mask=mine[:, None], other=0.0)
                right = tl.load(weights + at[None, :])
            else:
                within_row = (at < num_in)[None, :]
                left = tl.load(inputs + at[None, :], mask=mine[:, None] & within_row, other=0.0)
                right = tl.load(weights + at[None, :], mask=(outputs < num_out)[:, None] & within_row, other=0.0)
            if INTERPRETED:
                left, right = left.to(tl.float32), right.to(tl.float32)
            sums = tl.dot(left, tl.trans(right), sums, input_precision="ieee")
        if BIASED:
            of_expert = tl.load(bias + expert * num_out + outputs, mask=outputs < num_out, other=0.0)
            sums += of_expert.to(tl.float32)[None, :]
        to = out + target.to(tl.int64)[:, None] * num_out + outputs[None, :]
        value = _rounded(sums, out, INTERPRETED).to(out.dtype.element_ty)
        tl.store(to, value, mask=mine[:, None] & (outputs < num_out)[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _combine(x, weights, out, size, PER_TOKEN: tl.constexpr, BLOCK: tl.constexpr, INTERPRETED: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(PER_TOKEN):
        route = token * PER_TOKEN + k
        product = tl.load(x + route * size + at, mask=at < size, other=0.0).to(tl.float32)
        total += product * tl.load(weights + route).to(tl.float32)
    tl.store(out + token * size + at, _rounded(total, out, INTERPRETED).to(out.dtype.element_ty), mask=at < size)


def sort_routes(experts: Tensor, num_experts: int) -> Routes:
    """experts [T, K] int32 or int64, contiguous, whole numbers below num_experts."""
    order = torch.empty(experts.numel(), dtype=torch.int32, device=experts.device)
    ends = torch.empty(num_experts, dtype=torch.int32, device=experts.device)
    assert experts.is_contiguous(), "routes lie side by side"
    _sort[(num_experts,)](experts, order, ends, len(order), ROUTES=ROUTES, num_warps=4)
    return Routes(order, ends, experts.shape[1])


def gather_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, routes: Routes, tuning: GroupedTuning | None = None
) -> Tensor:
    """Each token with its experts. x [T, N], weight [E, M, N], bias [E, M] -> [P, M], as routes are ordered."""
    return _linear(x, weight, bias, routes, False, tuning)


def scatter_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, routes: Routes, tuning: GroupedTuning | None = None
) -> Tensor:
    """Each route with its expert. x [P, N] as routes are ordered, weight [E, M, N], bias [E, M] -> [T, K, M]"""
    made = _linear(x, weight, bias, routes, True, tuning)
    return made.view(routes.num_tokens, routes.per_token, weight.shape[1])


def combine(x: Tensor, weights: Tensor) -> Tensor:
    """x [T, K, M], weights [T, K] -> [T, M], summed in float32 from the first expert on."""
    tokens, per_token, size = x.shape
    assert x.is_contiguous() and weights.is_contiguous(), "products and their weights lie side by side"
    out = torch.empty((tokens, size), dtype=x.dtype, device=x.device)
    if tokens:
        _combine[(tokens, triton.cdiv(size, SUMMED))](
            x, weights, out, size, PER_TOKEN=per_token, BLOCK=SUMMED, INTERPRETED=INTERPRETED, num_warps=4
        )
    return out


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, routes: Routes, scatter: bool, tuning: GroupedTuning | None
) -> Tensor:
    num_experts, num_out, num_in = weight.shape
    num_routes = len(routes.order)
    assert x.is_contiguous() and weight.is_contiguous(), "rows of inputs and of weights lie side by side"
    out = torch.empty((num_routes, num_out), dtype=x.dtype, device=x.device)
    if not num_routes:
        return out
    tuning = tuning or grouped_tuning(num_routes / num_experts, processor_of(x.device))
    num_tiles = triton.cdiv(num_routes, tuning.tokens) + min(num_experts, num_routes)  # whatever goes where
    _grouped[(num_tiles * triton.cdiv(num_out, tuning.outputs),)](
        x, weight, x if bias is None else bias, routes.order, routes.ends, out,
        num_experts, num_tiles, num_in, num_out,
        PER_TOKEN=routes.per_token, SCATTER=scatter, **cut(num_experts, num_in, num_out, tuning),
        BIASED=bias is not None, INTERPRETED=INTERPRETED, **launched(tuning.warps),
    )  # fmt: skip
    return out


def cut(num_experts: int, num_in: int, num_out: int, tuning: GroupedTuning) -> dict[str, int | bool]:
    """What the kernel of such weights is compiled for."""
    whole = num_in % tuning.inputs == 0 and num_out % tuning.outputs == 0
    return {
        "EXPERTS": padded(num_experts), "TOKENS": tuning.tokens, "OUTPUTS": tuning.outputs, "INPUTS": tuning.inputs,
        "STAGES": tuning.stages, "TOGETHER": TOGETHER, "WHOLE": whole,
    }  # fmt: skip
