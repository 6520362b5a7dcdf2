"""Attention inside documents: cut into pieces it equals a mask over the whole row, forwards and backwards."""

import pytest
import torch

from scripts.demo_model.document_attention import PIECE, attend, masked


def numbers(length: int, *documents: int) -> list[int]:
    """A row with documents of these lengths, numbered from 1, and padding (0) after them."""
    row = [number for number, size in enumerate(documents, 1) for _ in range(size)]
    return row + [0] * (length - len(row))


LENGTH = 2 * PIECE + 100
ROWS = [
    numbers(LENGTH, 100, 400, 12, 600, 3, 5),
    numbers(LENGTH, LENGTH),
    numbers(LENGTH, *[1] * 40, PIECE, PIECE),
    numbers(LENGTH, PIECE + 1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pieces_equal_the_mask(dtype: torch.dtype) -> None:
    documents = torch.tensor(ROWS)
    shape = (len(ROWS), 2, LENGTH, 16)
    random = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=random).to(dtype).requires_grad_() for _ in range(3)]
    weights = torch.randn(shape, generator=random)
    found = [attend(*inputs, documents), masked(*inputs, documents)]
    near = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(*found, rtol=near, atol=near)
    grads = [torch.autograd.grad((out.float() * weights).sum(), inputs) for out in found]
    for ours, plain in zip(*grads, strict=True):
        torch.testing.assert_close(ours, plain, rtol=near, atol=near)


def test_a_document_does_not_see_the_others() -> None:
    documents = torch.tensor([numbers(LENGTH, 300, 700)])
    q, k, v = (torch.randn(1, 1, LENGTH, 16) for _ in range(3))
    before = attend(q, k, v, documents)
    k[:, :, :300], v[:, :, :300] = 7.0, -7.0
    after = attend(q, k, v, documents)
    assert torch.equal(before[:, :, 300:1000], after[:, :, 300:1000])
    assert not torch.equal(before[:, :, :300], after[:, :, :300])
