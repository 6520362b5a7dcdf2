"""What adapters change in a layer: compiled and stacked torch against one token at a time."""

from collections.abc import Callable

import pytest
import torch
from compiled import compiled_kernels
from torch import Tensor

from ramet.kernels.cpu.adapters import NativeChanges
from ramet.kernels.stacked_adapters import Change, Changes, LayerChanges, LowRank, StackedChanges, WholeWeight

SIZES = [(1, 1, 1), (3, 5, 2), (32, 40, 33), (7, 129, 127), (70, 64, 96)]  # tokens, N, M
WITHIN = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def way(name: str, num_slots: int, num_out: int, by_rows: bool = False) -> LayerChanges:
    return (
        NativeChanges(compiled_kernels(), num_slots, by_rows)
        if name == "compiled"
        else StackedChanges(num_out, by_rows)
    )


def low_rank(rank: int, num_in: int, first: int, count: int, dtype: torch.dtype, by_rows: bool = False) -> LowRank:
    down = torch.randn((num_in, rank) if by_rows else (rank, num_in)) / num_in**0.5
    return LowRank(first, down.to(dtype), (torch.randn(rank, count) / rank).to(dtype))


def drawn_changes(num_in: int, num_out: int, dtype: torch.dtype) -> dict[int, Changes]:
    """Of several ranks, of a fused layer's parts, of none, and one that stands for the weight."""
    half = num_out // 2
    parts: list[Change] = [low_rank(1, num_in, 0, half, dtype), low_rank(17, num_in, half, num_out - half, dtype)]
    own = (torch.randn(num_out - half, num_in) / num_in**0.5).to(dtype)
    return {
        1: (low_rank(16, num_in, 0, num_out, dtype),),
        2: tuple(part for part in parts if part.up.numel()),
        3: (),
        4: (WholeWeight(half, own, torch.randn(num_out - half).to(dtype)),),
    }


def one_by_one(x: Tensor, out: Tensor, slots: Tensor, changes: dict[int, Changes]) -> Tensor:
    told = out.double()
    for token, slot in enumerate(slots.tolist()):
        for change in changes.get(slot, ()):
            if isinstance(change, LowRank):
                columns = slice(change.first, change.first + change.up.shape[1])
                told[token, columns] += (x[token].double() @ change.down.double().T) @ change.up.double()
            else:
                columns = slice(change.first, change.first + len(change.weight))
                assert change.bias is not None
                told[token, columns] = change.weight.double() @ x[token].double() + change.bias.double()
    return told


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["compiled", "stacked"])
@pytest.mark.parametrize(("tokens", "num_in", "num_out"), SIZES)
def test_each_token_has_its_own_adapter(name: str, tokens: int, num_in: int, num_out: int, dtype: torch.dtype) -> None:
    torch.manual_seed(tokens)
    changes = drawn_changes(num_in, num_out, dtype)
    of_layer = way(name, 4, num_out)
    for slot, each in changes.items():
        of_layer.place(slot, each)
    wider = torch.randn(tokens, num_in + 3).to(dtype)
    x, slots = wider[:, :num_in], torch.randint(0, 5, (tokens,), dtype=torch.int32)
    for out in (torch.randn(tokens, num_out).to(dtype), torch.randn(tokens, num_out)):  # narrow, and wide
        told = one_by_one(x, out, slots, changes)
        made = of_layer.add(x, out, slots)
        assert made is out
        assert torch.allclose(made.double(), told, atol=WITHIN[dtype], rtol=WITHIN[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["compiled", "stacked"])
def test_embeddings(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tokens, vocabulary, size, scale = 50, 19, 37, 3.0
    low, own = low_rank(3, vocabulary, 0, size, dtype, by_rows=True), torch.randn(vocabulary, size).to(dtype)
    of_layer = way(name, 2, size, by_rows=True)
    of_layer.place(1, (low,))
    of_layer.place(2, (WholeWeight(0, own, None),))
    ids, slots = torch.randint(0, vocabulary, (tokens,)), torch.randint(0, 3, (tokens,), dtype=torch.int32)
    out = torch.randn(tokens, size).to(dtype)
    told = out.double()
    told[slots == 1] += (low.down[ids].double() @ low.up.double() * scale)[slots == 1]
    told[slots == 2] = (own[ids].double() * scale)[slots == 2]
    made = of_layer.add_rows(ids, out, slots, scale)
    assert torch.allclose(made.double(), told, atol=WITHIN[dtype], rtol=WITHIN[dtype])


@pytest.mark.parametrize("name", ["compiled", "stacked"])
def test_what_is_placed_last_counts(name: str) -> None:
    torch.manual_seed(0)
    first, second = (low_rank(2, 8, 0, 8, torch.float32) for _ in range(2))
    of_layer = way(name, 1, 8)
    x, slots = torch.randn(3, 8), torch.ones(3, dtype=torch.int32)
    result: Callable[[], Tensor] = lambda: of_layer.add(x, torch.zeros(3, 8), slots)  # noqa: E731
    for each in (first, second):
        of_layer.place(1, (each,))
        assert torch.allclose(result(), x @ each.down.T @ each.up, atol=1e-5)
    of_layer.place(1, ())
    assert not result().any()


@pytest.mark.parametrize("poison", [torch.inf, torch.nan, 6e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", ["compiled", "stacked"])
def test_numbers_of_an_adapter_reach_no_row_of_another(name: str, dtype: torch.dtype, poison: float) -> None:
    """6e4 is a number of float16, but its products are none. Every other row is the same to the last bit."""
    torch.manual_seed(0)
    tokens, num_in, num_out = 33, 40, 24
    x = torch.randn(tokens, num_in).to(dtype)
    own, theirs = low_rank(5, num_in, 0, num_out, dtype), low_rank(3, num_in, 4, 16, dtype)
    kept = WholeWeight(8, torch.randn(16, num_in).to(dtype), None)
    slots, wide = torch.arange(tokens, dtype=torch.int32) % 4, torch.randn(tokens, num_out).to(dtype)

    def added(number: float) -> Tensor:
        of_layer = way(name, 3, num_out)
        of_layer.place(1, (LowRank(0, torch.full_like(own.down, number), torch.ones_like(own.up)),))
        of_layer.place(2, (theirs,))
        of_layer.place(3, (kept,))
        return of_layer.add(x, wide.clone(), slots)

    poisoned = added(poison)
    assert torch.equal(poisoned[slots != 1], added(0.5)[slots != 1])
    if dtype == torch.float16 or poison != 6e4:
        assert not poisoned[slots == 1].isfinite().all()


@pytest.mark.parametrize("name", ["compiled", "stacked"])
def test_embeddings_of_an_adapter_reach_no_row_of_another(name: str) -> None:
    torch.manual_seed(0)
    ids, wide = torch.randint(0, 19, (33,)), torch.randn(33, 24)
    slots, own = torch.arange(33, dtype=torch.int32) % 3, low_rank(5, 19, 0, 24, torch.float32, by_rows=True)

    def added(number: float) -> Tensor:
        of_layer = way(name, 2, 24, by_rows=True)
        of_layer.place(1, (LowRank(0, torch.full_like(own.down, number), own.up),))
        of_layer.place(2, (own,))
        return of_layer.add_rows(ids, wide.clone(), slots, 3.0)

    assert torch.equal(added(torch.inf)[slots != 1], added(0.5)[slots != 1])
