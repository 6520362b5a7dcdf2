"""The fused Triton epilogue equals its plain oracle, in the interpreter, over odd sizes; and its draws are distributed
as they should be."""

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from samples import slow
from torch import Tensor
from triton.runtime import interpreter

from ramet.kernels import reference
from ramet.kernels.draw_params import COLUMNS, DrawParams
from ramet.kernels.epilogue_rows import EpilogueRows, EpilogueState
from ramet.kernels.logits_epilogue import adjust_logits, logits_epilogue

NEAR = 1e-5  # of the mass: so close to a boundary, rounding decides between two neighbours


def starts_of(lists: list[list[Any]]) -> Tensor:
    return torch.tensor([0, *np.cumsum([len(each) for each in lists])], dtype=torch.int32)


def make_rows(num: int, vocab: int, seed: int, **given: Any) -> EpilogueRows:
    """Every feature in some of the rows, alone and together."""
    random = np.random.default_rng(seed)
    biases = [random.choice(vocab, min(vocab, i % 4), replace=False).tolist() for i in range(num)]
    bans = [random.choice(vocab, min(vocab - 1, i % 3), replace=False).tolist() for i in range(num)]

    def floats(low: float, high: float) -> Tensor:
        return torch.from_numpy(random.uniform(low, high, num).astype(np.float32))

    every = torch.arange(num)
    fields: dict[str, Any] = dict(
        temperature=torch.where(every % 3 == 0, 0.0, floats(0.3, 2.0)),
        top_k=torch.where(every % 7 == 2, 5, 0),
        top_p=torch.where(every % 4 == 2, 0.7, 1.0),
        min_p=torch.where(every % 5 == 4, 0.1, 0.0),
        seeds=torch.from_numpy(random.integers(-(2**63), 2**63 - 1, num)),
        positions=torch.from_numpy(random.integers(0, 2**40, num)),
        slots=torch.where(every % 2 == 1, every + 1, 0).int(),
        frequency=floats(-2, 2),
        presence=floats(-2, 2),
        repetition=floats(0.1, 2),
        bias_starts=starts_of(biases),
        bias_ids=torch.tensor([t for each in biases for t in each], dtype=torch.int32),
        biases=torch.from_numpy(random.uniform(-5, 5, sum(map(len, biases))).astype(np.float32)),
        ban_starts=starts_of(bans),
        ban_ids=torch.tensor([t for each in bans for t in each], dtype=torch.int32),
        masks=torch.where(every % 4 == 3, every % 2, -1).int(),
        table_rows=torch.where(every % 5 == 1, -1, num - every).int(),
        penalises=True,
        ranks=True,
        floors=True,
    )
    fields |= given
    return EpilogueRows(DrawParams(**{name: fields.pop(name) for name in COLUMNS}), **fields)


def plain_rows(num: int, vocab: int, **given: Any) -> EpilogueRows:
    """Rows that use no feature but those given."""
    nothing = torch.zeros(0, dtype=torch.int32)
    starts, zeros = torch.zeros(num + 1, dtype=torch.int32), torch.zeros(num, dtype=torch.int32)
    neutral = dict(
        temperature=torch.ones(num), top_k=zeros.long(), top_p=torch.ones(num), min_p=torch.zeros(num),
        seeds=torch.arange(num), positions=zeros.long(), slots=zeros, masks=zeros - 1, table_rows=zeros - 1,
        bias_starts=starts, bias_ids=nothing, biases=nothing.float(), ban_starts=starts, ban_ids=nothing,
        penalises=False, ranks=False, floors=False,
    )  # fmt: skip
    return make_rows(num, vocab, 0, **neutral | given)


def make_state(num: int, vocab: int, seed: int) -> EpilogueState:
    random = torch.Generator().manual_seed(seed)
    words = -(-vocab // 32)
    counts = torch.randint(0, 6, (num + 2, vocab), generator=random).clamp_min(3).sub(3).to(torch.uint8)
    counts[:, 0] = 255
    seen = torch.randint(-(2**31), 2**31 - 1, (num + 2, words), generator=random, dtype=torch.int32)
    allowed = (
        torch.randint(-(2**31), 2**31 - 1, (2, words), generator=random, dtype=torch.int32) | 1 << (vocab - 1) % 32
    )
    lengths = torch.randint(1, 1000, (num + 1,), generator=random, dtype=torch.int32)
    return EpilogueState(counts, seen, allowed, lengths, torch.full((num + 1,), -7, dtype=torch.int32))


def copied(state: EpilogueState) -> EpilogueState:
    return EpilogueState(state.counts.clone(), state.seen, state.allowed, state.lengths.clone(), state.next_ids.clone())


def same_draw(logits: Tensor, rows: EpilogueRows, state: EpilogueState, ours: Tensor, theirs: Tensor) -> Tensor:
    """Per row: the same token, or two between which the random number is undecided within rounding."""
    values = logits.float().clone()
    reference.adjust_logits(values, rows, state)
    reference.mask_logits(values, rows, state)
    kept = reference.kept_weights(values, rows.draw_params).double()
    mass = kept.cumsum(-1) / kept.sum(-1, keepdim=True)
    uniform = reference.uniforms(rows.draw_params.seeds, rows.positions)
    low, high = torch.minimum(ours, theirs), torch.maximum(ours, theirs)
    between = (mass.gather(-1, low[:, None]).squeeze(-1) - uniform).abs() < NEAR
    nothing_between = (mass.gather(-1, (high - 1).clamp_min(0)[:, None]).squeeze(-1) - uniform).abs() < NEAR
    return (ours == theirs) | (rows.draw_params.temperature > 0) & between & nothing_between


SIZES = [(1, 1), (3, 127), (5, 4096), (3, 4097), (2, 32_000), (1, 128_256)]


@pytest.mark.parametrize(
    ("num", "vocab", "dtype"),
    [*((*size, dtype) for size in SIZES for dtype in (torch.float32, torch.bfloat16)), slow((257, 127, torch.float32))],
    ids=str,
)
def test_the_kernel_equals_the_oracle(num: int, vocab: int, dtype: torch.dtype):
    logits = (torch.randn(num, vocab, generator=torch.Generator().manual_seed(vocab)) * 4).to(dtype)
    rows, state = make_rows(num, vocab, seed=num), make_state(num, vocab, seed=vocab)
    plain_state, fused_state = copied(state), copied(state)
    plain = reference.logits_epilogue(logits, rows, plain_state)
    fused = logits_epilogue(logits, rows, fused_state)
    assert torch.equal(plain.finite, fused.finite)
    drawn = plain.finite
    assert same_draw(logits, rows, state, fused.tokens, plain.tokens)[drawn].all()
    equal = drawn & (fused.tokens == plain.tokens)
    assert equal.sum() >= 0.99 * drawn.sum() - 1
    torch.testing.assert_close(fused.logprobs[equal], plain.logprobs[equal], rtol=1e-5, atol=2e-5)
    expected = state.counts.clone()
    at = torch.nonzero(rows.slots).flatten()
    reference.count_tokens(expected, at, rows.slots[at], fused.tokens)
    assert torch.equal(fused_state.counts, expected)
    assert torch.equal(fused_state.lengths, plain_state.lengths) and (plain_state.lengths - state.lengths).max() <= 1
    placed = torch.nonzero(rows.table_rows >= 0).flatten()
    expected_ids = state.next_ids.index_copy(0, rows.table_rows[placed].long(), fused.tokens[placed].int())
    assert torch.equal(fused_state.next_ids, expected_ids)


def test_what_is_written_for_a_processor_equals_the_oracle():
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(1)) * 4
    rows, state = make_rows(6, 5000, seed=2), make_state(6, 5000, seed=3)
    plain, fused = logits.clone(), logits.clone()
    reference.adjust_logits(plain, rows, state)
    adjust_logits(fused, rows, state)
    torch.testing.assert_close(fused, plain, rtol=1e-6, atol=1e-5)
    once = logits_epilogue(logits, rows, copied(state))
    assert torch.equal(once.tokens, logits_epilogue(fused, rows, copied(state), adjusted=True).tokens)


@pytest.mark.parametrize("num", [2, slow(16)])
@pytest.mark.parametrize(("top_k", "top_p"), [(7, 1.0), (0, 0.5), (3000, 0.9), (10, 0.001), (4500, 1.0), (0, 0.95)])
def test_a_cut_by_rank_equals_the_oracle_also_among_equals(top_k: int, top_p: float, num: int):
    """Each row's draw lies at another place of the mass that is left, so that many rows show its whole support."""
    vocab = 4200
    logits = (torch.randn(vocab, generator=torch.Generator().manual_seed(1)) * 2).round().expand(num, vocab)
    cuts = {"top_k": torch.full((num,), top_k), "top_p": torch.full((num,), top_p)}
    rows = plain_rows(num, vocab, **cuts, ranks=True)
    state = make_state(1, vocab, 0)
    plain, fused = reference.logits_epilogue(logits, rows, state), logits_epilogue(logits, rows, state)
    assert same_draw(logits, rows, state, fused.tokens, plain.tokens).all()
    assert (fused.tokens != plain.tokens).sum() <= num // 8
    equal = fused.tokens == plain.tokens
    torch.testing.assert_close(fused.logprobs[equal], plain.logprobs[equal], rtol=1e-5, atol=2e-5)


def test_a_row_does_not_depend_on_its_neighbours():
    vocab = 300
    logits = torch.randn(9, vocab, generator=torch.Generator().manual_seed(4))
    rows, state = make_rows(9, vocab, seed=5), make_state(9, vocab, seed=6)
    together = logits_epilogue(logits, rows, copied(state))
    for i in range(9):
        biases = slice(int(rows.bias_starts[i]), int(rows.bias_starts[i + 1]))
        bans = slice(int(rows.ban_starts[i]), int(rows.ban_starts[i + 1]))
        one = {name: getattr(rows.draw_params, name)[i : i + 1] for name in COLUMNS}
        one |= {name: getattr(rows, name)[i : i + 1] for name in (
            "positions", "slots", "frequency", "presence", "repetition", "masks", "table_rows",
        )}  # fmt: skip
        alone = make_rows(
            1, vocab, 0, **one,
            bias_starts=starts_of([rows.bias_ids[biases].tolist()]),
            bias_ids=rows.bias_ids[biases], biases=rows.biases[biases],
            ban_starts=starts_of([rows.ban_ids[bans].tolist()]), ban_ids=rows.ban_ids[bans],
        )  # fmt: skip
        drawn = logits_epilogue(logits[i : i + 1], alone, copied(state))
        assert drawn.tokens[0] == together.tokens[i] and drawn.logprobs[0] == together.logprobs[i]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_named_and_harm_nobody(bad: float):
    logits = torch.randn(4, 200, generator=torch.Generator().manual_seed(7))
    rows, state = make_rows(4, 200, seed=8), make_state(4, 200, seed=9)
    clean = logits_epilogue(logits, rows, copied(state))
    logits[2, 7] = bad
    drawn = logits_epilogue(logits, rows, copied(state))
    assert drawn.finite.tolist() == [True, True, False, True]
    others = torch.tensor([0, 1, 3])
    assert torch.equal(drawn.tokens[others], clean.tokens[others])


def as_on_a_card(reduce: Any, given: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
    """The best of numbers and where it is: two by two, and of two that cannot be compared the one behind."""
    numbers = given.handle.data
    if idx_reduce_op is None or numbers.ndim != 1:
        return MIN_MAX(reduce, given, val_reduce_op, idx_reduce_op)
    found = np.arange(len(numbers), dtype=np.int32)
    while len(found) > 1:
        one, other = found.reshape(2, -1)
        ahead = (numbers[one] > numbers[other]) | ((numbers[one] == numbers[other]) & (one < other))
        found = np.where(ahead, one, other)
    return reduce.to_tensor(numbers[found[0]], given.dtype), reduce.to_tensor(found[0], tl.int32)


MIN_MAX = interpreter.ReduceOps.min_max


@pytest.mark.parametrize("vocab", [200, 5000, 49152])
def test_of_a_row_of_nothing_but_nan_a_token_is_drawn_that_there_is(monkeypatch: pytest.MonkeyPatch, vocab: int):
    monkeypatch.setattr(interpreter.ReduceOps, "min_max", as_on_a_card)
    logits = torch.randn(2, vocab, generator=torch.Generator().manual_seed(7))
    ones, slots = torch.ones(2), torch.tensor([1, 0], dtype=torch.int32)
    rows = plain_rows(
        2, vocab, temperature=torch.zeros(2), slots=slots, frequency=ones, presence=ones, repetition=ones,
        penalises=True, table_rows=slots,
    )  # fmt: skip
    clean = logits_epilogue(logits, rows, make_state(2, vocab, 0))
    assert torch.equal(clean.tokens[1], logits[1].argmax())
    logits[0], state = float("nan"), make_state(2, vocab, 0)
    before = copied(state)
    drawn = logits_epilogue(logits, rows, state)
    assert drawn.finite.tolist() == [False, True] and drawn.tokens[1] == clean.tokens[1]
    assert 0 <= drawn.tokens[0] < vocab and 0 <= state.next_ids[1] < vocab
    assert torch.equal(state.counts[2:], before.counts[2:]), "another request's counts"


@pytest.mark.parametrize("num", [70, slow(400)])
@pytest.mark.parametrize(("temperature", "min_p"), [(1.0, 0.0), (0.6, 0.2)])
def test_draws_follow_the_distribution(temperature: float, min_p: float, num: int):
    """Chi-square against the exact probabilities of a dozen tokens that lie in two blocks, among impossible ones."""
    vocab, possible = 4100, 12
    at = torch.arange(possible) * 370
    logits = torch.full((vocab,), -torch.inf)
    logits[at] = torch.randn(possible, generator=torch.Generator().manual_seed(11))
    probs = torch.softmax(logits[at] / temperature, 0)
    probs = torch.where(probs >= min_p * probs.max(), probs, 0.0)
    probs /= probs.sum()
    cuts = {"temperature": torch.full((num,), temperature), "min_p": torch.full((num,), min_p)}
    rows = plain_rows(num, vocab, **cuts, floors=min_p > 0)
    drawn = logits_epilogue(logits.expand(num, vocab), rows, make_state(1, vocab, 0))
    seen = torch.bincount(drawn.tokens // 370, minlength=possible)
    assert (drawn.tokens % 370 == 0).all() and (seen[probs == 0] == 0).all()
    expected = (probs * num)[probs > 0]
    chi = ((seen[probs > 0] - expected) ** 2 / expected).sum()
    degrees = len(expected) - 1
    assert chi < degrees + 4.5 * (2 * degrees) ** 0.5  # p < 0.0001
