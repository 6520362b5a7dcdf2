"""The fused epilogue on a CUDA device equals the oracle on the host."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))
from test_logits_epilogue import copied, make_rows, make_state, plain_rows, same_draw

from ramet.kernels import reference
from ramet.kernels.draw_params import DrawParams
from ramet.kernels.logits_epilogue import adjust_logits, logits_epilogue

pytestmark = pytest.mark.gpu


def placed(kept: Any) -> Any:
    if isinstance(kept, DrawParams):
        return kept.map(torch.Tensor.cuda)
    fields = {name: getattr(kept, name) for name in kept.__slots__}
    moved = {n: placed(x) for n, x in fields.items() if isinstance(x, DrawParams)}
    return type(kept)(**{n: x.cuda() if isinstance(x, torch.Tensor) else x for n, x in (fields | moved).items()})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("num", "vocab"), [(1, 1), (3, 127), (5, 4097), (64, 32_000), (256, 128_256)])
def test_the_kernel_equals_the_oracle(num: int, vocab: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(num, vocab, generator=torch.Generator().manual_seed(vocab)) * 4).to(dtype)
    rows, state = make_rows(num, vocab, seed=num), make_state(num, vocab, seed=vocab)
    plain_state, on_card = copied(state), placed(copied(state))
    plain = reference.logits_epilogue(logits, rows, plain_state)
    fused = logits_epilogue(logits.cuda(), placed(rows), on_card)
    tokens, drawn = fused.tokens.cpu(), plain.finite
    assert torch.equal(plain.finite, fused.finite.cpu())
    assert same_draw(logits, rows, state, tokens, plain.tokens)[drawn].all()
    equal = drawn & (tokens == plain.tokens)
    assert equal.sum() >= 0.99 * drawn.sum() - 1
    torch.testing.assert_close(fused.logprobs.cpu()[equal], plain.logprobs[equal], rtol=2e-5, atol=5e-5)
    expected = state.counts.clone()
    at = torch.nonzero(rows.slots).flatten()
    reference.count_tokens(expected, at, rows.slots[at], tokens)
    assert torch.equal(on_card.counts.cpu(), expected)
    assert torch.equal(on_card.lengths.cpu(), plain_state.lengths)


def test_what_is_written_for_a_processor_equals_the_oracle() -> None:
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(1)) * 4
    rows, state = make_rows(6, 5000, seed=2), make_state(6, 5000, seed=3)
    plain, fused = logits.clone(), logits.cuda()
    reference.adjust_logits(plain, rows, state)
    adjust_logits(fused, placed(rows), placed(state))
    torch.testing.assert_close(fused.cpu(), plain, rtol=1e-6, atol=2e-5)


def test_plain_rows_draw_the_same_every_time() -> None:
    logits = torch.randn(64, 128_256, generator=torch.Generator().manual_seed(1)).cuda() * 3
    rows, state = placed(plain_rows(64, 128_256)), placed(make_state(1, 128_256, 0))
    first = logits_epilogue(logits, rows, state).tokens
    for _ in range(20):
        assert torch.equal(logits_epilogue(logits, rows, state).tokens, first)
