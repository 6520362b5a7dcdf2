"""Causal attention inside each document of a packed row, without looking at the others.

Decides how rows are cut. On a CPU a long row is attended piece by piece, a piece being one long document or some short
ones: a mask over all of its 4,096 tokens costs several times as much. It is one opaque operation, so that torch.compile
sees fixed shapes. Short rows, and other devices, take a mask.
B rows, H heads, T tokens, E head size; documents [B, T] int64 numbers the documents of a row, which are runs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

PIECE = 512  # tokens
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def attend(q: Tensor, k: Tensor, v: Tensor, documents: Tensor) -> Tensor:
    """q, k, v [B, H, T, E] -> [B, H, T, E]: a token sees itself and what is before it in its own document.

    In short rows it also sees what is before it of document 0: the picture that a row's questions are about. A row
    without one has that number at its end alone, as padding.
    """
    if q.device.type == "cpu" and documents.shape[1] > PIECE:
        out: Tensor = _attend(q, k, v, documents)[0]
        return out
    return masked(q, k, v, documents)


def masked(q: Tensor, k: Tensor, v: Tensor, documents: Tensor) -> Tensor:
    """The plain form."""
    length = documents.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    asking, asked = documents[:, None, :, None], documents[:, None, None, :]
    mask = ((asking == asked) | (asked == 0)) & causal
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Piece(NamedTuple):
    """Tokens of one row that look at nothing outside; `mask` [n, n] is added to their scores, None: just causal."""

    at: tuple[slice, slice, slice]  # index of a [B, H, T, ...] tensor
    mask: Tensor | None


@torch.library.custom_op("ramet_demo::attend", mutates_args=())
def _attend(q: Tensor, k: Tensor, v: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
    """Also the logarithms of the softmax sums, [B, H, T] float32."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    sums = q.new_empty(q.shape[:3], dtype=torch.float32)
    for at, mask in _pieces(documents, q.dtype):
        out[at], sums[at] = _flash(q[at], k[at], v[at], 0.0, mask is None, attn_mask=mask)
    return out, sums


@torch.library.custom_op("ramet_demo::attend_backward", mutates_args=())
def _attend_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, documents: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    grads = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    for at, mask in _pieces(documents, q.dtype):
        own = _flash_backward(grad[at], q[at], k[at], v[at], out[at], sums[at], 0.0, mask is None, attn_mask=mask)
        for whole, part in zip(grads, own, strict=True):
            whole[at] = part
    return grads  # type: ignore[return-value]


def _pieces(documents: Tensor, dtype: torch.dtype) -> Iterator[Piece]:
    """Each row cut into runs of documents that have at most PIECE tokens together, or are one longer document."""
    for row, numbers in enumerate(documents):
        start = 0
        for length, alone in _runs(torch.unique_consecutive(numbers, return_counts=True)[1].tolist()):
            at = slice(row, row + 1), slice(None), slice(start, start + length)
            yield Piece(at, None if alone else _mask(numbers[start : start + length], dtype))
            start += length


def _runs(lengths: list[int]) -> Iterator[tuple[int, bool]]:
    """(tokens, whether it is one document) of each piece, in order."""
    together = num = 0
    for length in lengths:
        if num and together + length > PIECE:
            yield together, num == 1
            together = num = 0
        together, num = together + length, num + 1
    yield together, num == 1


def _mask(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a token may look, -inf elsewhere. [n, n]"""
    hidden = (numbers[:, None] != numbers) | torch.ones(len(numbers), len(numbers), dtype=torch.bool).triu(1)
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -torch.inf)


@_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


@_attend_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, documents: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return q, k, v


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, documents = inputs
    ctx.save_for_backward(q, k, v, *output, documents)


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    q, k, v, out, sums, documents = ctx.saved_tensors  # type: ignore[attr-defined]
    return *_attend_backward(grad.contiguous(), q, k, v, out, sums, documents), None


_attend.register_autograd(_differentiate, setup_context=_keep)
