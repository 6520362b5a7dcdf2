"""Where a GPU draws tokens: penalties, bias, masks and temperature in one read of the logits, then the draw.

Two stages. `_adjust`, one program per row and block of the vocabulary: reads the logits once and leaves each block's
maximum, its place and its sum of exponentials; nothing of the size of the logits is written, unless a logit processor
or a cut by rank comes in between (`_cut`, one program per row: nothing is sorted, the least value that stays is
bisected). `_draw`, one program per row: combines the blocks, takes the best token or inverts the cumulative mass at the
row's own random number, reads one block again, and updates on the device what the next step reads: the row's counts,
its length, its next token. Decides nothing about requests. kernels/reference.py holds the oracle, with the same
signature.

Q rows, V vocabulary, B = ceil(V / BLOCK) blocks, S penalty slots, M grammar masks, W = ceil(V / 32) words.
"""

import torch
from torch import Tensor

from ramet.kernels.epilogue_rows import DrawnRows, EpilogueRows, EpilogueState
from ramet.kernels.triton_there import tl, triton

BLOCK = 4096
WARPS = 8


@triton.jit
def _bits(words, base, cols, valid):  # type: ignore[no-untyped-def]
    word = tl.load(words + base + cols // 32, mask=valid, other=0)
    return ((word >> (cols % 32)) & 1) != 0


@triton.jit  # type: ignore[untyped-decorator]
def _adjusted(  # type: ignore[no-untyped-def]
    logits, stride, row, cols, vocab, words,
    temperature, slots, frequency, presence, repetition,
    bias_starts, bias_ids, biases, ban_starts, ban_ids, masks, counts, seen, allowed,
    PENALISE: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """One block of one row, float32, divided by the temperature; -inf outside the vocabulary."""
    valid = cols < vocab
    x = tl.load(logits + row.to(tl.int64) * stride + cols, mask=valid, other=float("-inf")).to(tl.float32)
    if PENALISE:
        slot = tl.load(slots + row).to(tl.int64)
        if slot > 0:
            count = tl.load(counts + slot * vocab + cols, mask=valid, other=0).to(tl.float32)
            drawn = count > 0
            lowered = x - (tl.load(frequency + row) * count + tl.load(presence + row))
            x = tl.where(drawn, lowered, x)
            factor = tl.load(repetition + row)
            scaled = tl.where(x < 0, x * factor, x / factor)
            x = tl.where(drawn | _bits(seen, slot * words, cols, valid), scaled, x)
        for i in range(tl.load(bias_starts + row), tl.load(bias_starts + row + 1)):
            x = tl.where(cols == tl.load(bias_ids + i), x + tl.load(biases + i), x)
    if MASK:
        for i in range(tl.load(ban_starts + row), tl.load(ban_starts + row + 1)):
            x = tl.where(cols == tl.load(ban_ids + i), float("-inf"), x)
        mask = tl.load(masks + row).to(tl.int64)
        if mask >= 0:
            x = tl.where(_bits(allowed, mask * words, cols, valid), x, float("-inf"))
        t = tl.load(temperature + row)
        x = x / tl.where(t > 0, t, 1.0)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def _adjust(  # type: ignore[no-untyped-def]
    logits, stride, vocab, words, num_blocks,
    temperature, slots, frequency, presence, repetition,
    bias_starts, bias_ids, biases, ban_starts, ban_ids, masks, counts, seen, allowed,
    maxima, places, sums, floors, min_p, out, out_stride,
    PENALISE: tl.constexpr, MASK: tl.constexpr, WRITE: tl.constexpr, FLOOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(0), tl.program_id(1)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    x = _adjusted(
        logits, stride, row, cols, vocab, words,
        temperature, slots, frequency, presence, repetition,
        bias_starts, bias_ids, biases, ban_starts, ban_ids, masks, counts, seen, allowed, PENALISE, MASK,
    )  # fmt: skip
    if WRITE:
        tl.store(out + row.to(tl.int64) * out_stride + cols, x, mask=cols < vocab)
    if FLOOR:  # a second time: what is too unlikely beside the row's best token weighs nothing
        x = tl.where(x >= tl.load(floors + row) + tl.log(tl.load(min_p + row)), x, float("-inf"))
    best, place = tl.max(x, axis=0, return_indices=True)
    weight = tl.where(x == float("-inf"), 0.0, tl.exp(x - best))
    at = row * num_blocks + block
    tl.store(maxima + at, best)
    tl.store(places + at, block * BLOCK + place)
    tl.store(sums + at, tl.sum(weight, axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    logits, stride, vocab, words, num_blocks,
    temperature, slots, frequency, presence, repetition,
    bias_starts, bias_ids, biases, ban_starts, ban_ids, masks, counts, seen, allowed,
    maxima, places, sums, floors, min_p, log_totals, seeds, positions, tokens, logprobs, finite,
    table_rows, lengths, next_ids,
    PENALISE: tl.constexpr, MASK: tl.constexpr, FLOOR: tl.constexpr, LOGPROBS: tl.constexpr, COUNT: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    blocks = tl.arange(0, BLOCKS)
    there = blocks < num_blocks
    peak = tl.load(maxima + row * num_blocks + blocks, mask=there, other=float("-inf"))
    part = tl.load(sums + row * num_blocks + blocks, mask=there, other=0.0)
    best, first = tl.max(peak, axis=0, return_indices=True)
    mass = tl.where(peak == float("-inf"), 0.0, part * tl.exp(peak - best)).to(tl.float64)
    total = tl.sum(mass, axis=0)
    log_total = tl.log(total).to(tl.float32)
    if LOGPROBS:  # what was measured before the cuts: they drop a NaN
        log_total = tl.load(log_totals + row) - best
    first = tl.minimum(first, num_blocks - 1)  # of nothing but NaN, a card's best is what comes behind it
    token = tl.minimum(tl.load(places + row * num_blocks + first), vocab - 1).to(tl.int32)
    logprob = -log_total
    if tl.load(temperature + row) > 0:
        position = tl.load(positions + row)
        low, high = (position & 0xFFFFFFFF).to(tl.uint32), (position >> 32).to(tl.uint32)
        zero = low * 0
        c0, c1, _, _ = tl.philox(tl.load(seeds + row), low, high, zero, zero)
        uniform = ((c0.to(tl.uint64) << 21) | (c1.to(tl.uint64) >> 11)).to(tl.float64) * (1.0 / 9007199254740992.0)
        target = uniform * total
        block = tl.sum(((tl.cumsum(mass, axis=0) <= target) & there).to(tl.int32), axis=0)
        block = tl.minimum(block, tl.max(tl.where(mass > 0, blocks, 0), axis=0))  # rounding must not pass the last one
        rest = (target - tl.sum(tl.where(blocks < block, mass, 0.0), axis=0)).to(tl.float32)
        lanes = tl.arange(0, BLOCK)
        x = _adjusted(
            logits, stride, row, block * BLOCK + lanes, vocab, words,
            temperature, slots, frequency, presence, repetition,
            bias_starts, bias_ids, biases, ban_starts, ban_ids, masks, counts, seen, allowed, PENALISE, MASK,
        )  # fmt: skip
        weight = tl.where(x == float("-inf"), 0.0, tl.exp(x - best))
        if FLOOR:
            weight = tl.where(x >= tl.load(floors + row) + tl.log(tl.load(min_p + row)), weight, 0.0)
        lane = tl.sum((tl.cumsum(weight, axis=0) <= rest).to(tl.int32), axis=0)
        lane = tl.minimum(lane, tl.max(tl.where(weight > 0, lanes, 0), axis=0))
        token = block * BLOCK + lane
        logprob = tl.sum(tl.where(lanes == lane, x, 0.0), axis=0) - best - log_total
    tl.store(tokens + row, token.to(tl.int64))
    tl.store(logprobs + row, logprob)
    tl.store(finite + row, (log_total > float("-inf")) & (log_total < float("inf")))
    table_row = tl.load(table_rows + row)
    if table_row >= 0:
        tl.store(lengths + table_row, tl.load(lengths + table_row) + 1)
        tl.store(next_ids + table_row, token)
    if COUNT:
        slot = tl.load(slots + row).to(tl.int64)
        if slot > 0:
            at = counts + slot * vocab + token
            tl.store(at, tl.minimum(tl.load(at).to(tl.int32) + 1, 255).to(tl.uint8))


@triton.jit
def _keys(x):  # type: ignore[no-untyped-def]
    """Integers in the order of the floats."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0 and 0 are one value
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit  # type: ignore[untyped-decorator]
def _above(values, key, best, vocab, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """How many values of a row have larger keys, and the sum of their exponentials."""
    number = tl.zeros((), tl.int32)
    mass = tl.zeros((), tl.float64)
    for start in range(0, vocab, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(values + cols, mask=cols < vocab, other=float("-inf"))
        larger = (_keys(x) > key) & (cols < vocab)
        number += tl.sum(larger.to(tl.int32), axis=0)
        mass += tl.sum(tl.where(larger, tl.exp(x - best), 0.0), axis=0).to(tl.float64)
    return number, mass


@triton.jit  # type: ignore[untyped-decorator]
def _cut(values, vocab, maxima, sums, num_blocks, top_k, top_p, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):  # type: ignore[no-untyped-def]
    """-inf for what top_k and top_p leave out of a row, found by bisecting the bits of the least value that stays."""
    row = tl.program_id(0)
    values += row.to(tl.int64) * vocab
    k, p = tl.load(top_k + row), tl.load(top_p + row)
    if (k > 0) | (p < 1):
        blocks = tl.arange(0, BLOCKS)
        there = blocks < num_blocks
        peak = tl.load(maxima + row * num_blocks + blocks, mask=there, other=float("-inf"))
        part = tl.load(sums + row * num_blocks + blocks, mask=there, other=0.0)
        best = tl.max(peak, axis=0)
        total = tl.sum(tl.where(peak == float("-inf"), 0.0, part * tl.exp(peak - best)).to(tl.float64), axis=0)
        most = tl.where(k > 0, tl.minimum(k, vocab), vocab).to(tl.int32)
        wanted = tl.where(p < 1, p.to(tl.float64) * total, float("inf"))
        high = _keys(best).to(tl.int64)  # stays
        low = high * 0 - 2147483648  # does not
        for _ in range(32):
            middle = (low + high) >> 1
            number, mass = _above(values, middle.to(tl.int32), best, vocab, BLOCK)
            stays = (number < most) & (mass < wanted)
            high = tl.where(stays, middle, high)
            low = tl.where(stays, low, middle)
        least = high.to(tl.int32)
        number, mass = _above(values, least, best, vocab, BLOCK)
        value = tl.where(least < 0, least ^ 0x7FFFFFFF, least).to(tl.float32, bitcast=True)
        weight = tl.exp(value - best).to(tl.float64)
        ties = (most - number).to(tl.float64)  # of those that equal the least value, this many stay
        ties = tl.where((p < 1) & (weight > 0), tl.minimum(ties, tl.ceil((wanted - mass) / weight)), ties)
        ties = tl.maximum(ties, 1.0).to(tl.int32)
        passed = tl.zeros((), tl.int32)
        for start in range(0, vocab, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            keys = _keys(tl.load(values + cols, mask=cols < vocab, other=float("-inf")))
            equal = ((keys == least) & (cols < vocab)).to(tl.int32)
            out = (keys < least) | ((equal > 0) & (passed + tl.cumsum(equal, axis=0) > ties))
            tl.store(values + cols, float("-inf"), mask=out & (cols < vocab))
            passed += tl.sum(equal, axis=0)


def adjust_logits(logits: Tensor, rows: EpilogueRows, state: EpilogueState) -> None:
    """Penalties, then biases, with the arithmetic of kernels/reference.py. WRITES logits [Q, V] float32."""
    blocks = _Blocks(logits)
    _adjust[blocks.grid](
        *_common(logits, rows, state, blocks), blocks.maxima, rows.draw_params.min_p, logits, logits.stride(0),
        PENALISE=True, MASK=False, WRITE=True, FLOOR=False, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip


def logits_epilogue(logits: Tensor, rows: EpilogueRows, state: EpilogueState, adjusted: bool = False) -> DrawnRows:
    """One token for each row, as kernels/reference.py draws it. WRITES counts, lengths and next_ids.

    logits [Q, V] are float32, bfloat16 or float16.
    """
    num, vocab = logits.shape
    blocks, params = _Blocks(logits), rows.draw_params
    common = _common(logits, rows, state, blocks)
    flags = dict(PENALISE=rows.penalises and not adjusted, MASK=True, BLOCK=BLOCK, num_warps=WARPS)
    floors = log_totals = blocks.maxima  # not read
    ranked = torch.empty((num, vocab), dtype=torch.float32, device=logits.device) if rows.ranks else logits
    stride = ranked.stride(0)
    _adjust[blocks.grid](*common, floors, params.min_p, ranked, stride, WRITE=rows.ranks, FLOOR=False, **flags)
    if rows.ranks or rows.floors:
        floors = blocks.maxima.amax(dim=1)
        log_totals = floors + (blocks.sums * (blocks.maxima - floors[:, None]).exp()).sum(dim=1).log()
    if rows.ranks:
        _cut[(num,)](
            ranked, vocab, blocks.maxima, blocks.sums, blocks.num, params.top_k, params.top_p,
            BLOCK=BLOCK, BLOCKS=blocks.padded, num_warps=WARPS,
        )  # fmt: skip
        common = _common(ranked, rows, state, blocks)
        flags |= dict(PENALISE=False, MASK=False)
    if rows.ranks or rows.floors:
        _adjust[blocks.grid](*common, floors, params.min_p, ranked, stride, WRITE=False, FLOOR=rows.floors, **flags)
    drawn = DrawnRows(
        torch.empty(num, dtype=torch.int64, device=logits.device),
        torch.empty(num, dtype=torch.float32, device=logits.device),
        torch.empty(num, dtype=torch.bool, device=logits.device),
    )
    _draw[(num,)](
        *common, floors, params.min_p, log_totals, params.seeds, rows.positions,
        drawn.tokens, drawn.logprobs, drawn.finite, rows.table_rows, state.lengths, state.next_ids,
        FLOOR=rows.floors, LOGPROBS=rows.ranks or rows.floors, COUNT=rows.penalises, BLOCKS=blocks.padded, **flags,
    )  # fmt: skip
    return drawn


class _Blocks:
    """What `_adjust` leaves of every block: its maximum, where that is, and its sum of exponentials beside it."""

    def __init__(self, logits: Tensor) -> None:
        rows, vocab = logits.shape
        self.num = triton.cdiv(vocab, BLOCK)
        self.padded = triton.next_power_of_2(self.num)
        self.grid = (rows, self.num)
        self.maxima, self.sums = (torch.empty(self.grid, dtype=torch.float32, device=logits.device) for _ in range(2))
        self.places = torch.empty(self.grid, dtype=torch.int32, device=logits.device)


def _common(logits: Tensor, rows: EpilogueRows, state: EpilogueState, blocks: _Blocks) -> tuple[Tensor | int, ...]:
    """The arguments that both kernels begin with."""
    assert logits.stride(1) == 1, f"the values of a row must lie side by side, their stride is {logits.stride(1)}"
    return (
        logits, logits.stride(0), logits.shape[1], state.seen.shape[1], blocks.num,
        rows.draw_params.temperature, rows.slots, rows.frequency, rows.presence, rows.repetition,
        rows.bias_starts, rows.bias_ids, rows.biases, rows.ban_starts, rows.ban_ids, rows.masks,
        state.counts, state.seen, state.allowed, blocks.maxima, blocks.places, blocks.sums,
    )  # fmt: skip
