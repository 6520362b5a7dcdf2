"""What bench/gpu/model.py says that kernels move is what they load and store, counted in the interpreter."""

import pytest
import torch
from attention_cases import Case
from test_logits_epilogue import make_state, plain_rows
from traffic import Traffic, counted

from ramet.bench.gpu import model
from ramet.kernels import gpu_ops
from ramet.kernels.logits_epilogue import logits_epilogue
from ramet.kernels.reference import RopeTables

ROWS = 3


def agrees(traffic: Traffic, *kernels: model.Kernel, rest: int = 0) -> None:
    """But for `rest` bytes: single numbers of each row, which the model leaves out."""
    read, written = sum(kernel.read for kernel in kernels), sum(kernel.written for kernel in kernels)
    assert read <= traffic.read <= read + rest, (read, traffic.read)
    assert written <= traffic.written <= written + rest, (written, traffic.written)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).half()


@pytest.mark.parametrize("hidden", [256, 4097])
def test_norms(hidden: int) -> None:
    with counted() as traffic:
        gpu_ops.add_rms_norm(random(ROWS, hidden), random(ROWS, hidden), random(hidden), 1e-6)
    agrees(traffic, model.norm(ROWS, hidden))


def test_activations() -> None:
    with counted() as traffic:
        gpu_ops.silu_mul(random(ROWS, 2 * 700))
    agrees(traffic, model.gated(ROWS, 700))


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(8, 2, 64), (4, 4, 80)])
def test_from_a_projection_to_the_pool(heads: int, kv_heads: int, head_dim: int) -> None:
    qkv = random(ROWS, heads + 2 * kv_heads, head_dim)
    rope = RopeTables(*torch.randn(2, 16, head_dim // 2))
    pools = (torch.zeros(8, kv_heads, head_dim, dtype=qkv.dtype) for _ in "kv")
    with counted() as traffic:
        gpu_ops.norm_rope_store(qkv, heads, rope, torch.tensor([3, 5, 9]), None, *pools, torch.tensor([1, 4, 2]))
    agrees(traffic, model.place(ROWS, heads, kv_heads, head_dim))


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (4, 4)])
def test_decode_attention(heads: int, kv_heads: int) -> None:
    context = 300
    placed = Case([(context - 1, 1)] * ROWS, heads, kv_heads, dtype=torch.float16).on(torch.device("cpu"))
    with counted() as traffic:
        placed.decoded()
    agrees(traffic, model.attention(ROWS, context, heads, kv_heads, 64), rest=100 * ROWS)


def test_the_epilogue_and_the_draw() -> None:
    vocabulary = 9000
    logits = random(ROWS, vocabulary)
    rows, state = plain_rows(ROWS, vocabulary), make_state(ROWS, vocabulary, 0)
    with counted() as traffic:
        logits_epilogue(logits, rows, state)
    over_all, of_a_block = model.epilogue(ROWS, vocabulary)
    agrees(traffic, over_all, rest=500 * ROWS)  # the draw reads some of the same again
    assert of_a_block.read < over_all.read
