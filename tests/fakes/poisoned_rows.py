"""Not a fake: fills one row of a case of attention, and every slot that no other row uses, with a number, NaN say."""

import torch
from attention_cases import Placed
from latent_cases import PlacedLatents

POISONED = 2  # index of the row, where a test has no reason for another


def poison(placed: Placed | PlacedLatents, number: float, row: int = POISONED) -> torch.Tensor:
    """WRITES the tensors of the case. Returns which of its T tokens are the other rows': [T] bool."""
    device = placed.table.device
    others = [i for i in range(len(placed.lengths)) if i != row]
    kept = torch.cat([placed.table[int(placed.rows[i]), : placed.lengths[i]] for i in others]).long()
    foreign = torch.ones(len(placed.keys), dtype=torch.bool, device=device)
    foreign[kept] = False
    ends = torch.tensor(placed.num_new).cumsum(0).tolist()
    is_own = torch.ones(ends[-1], dtype=torch.bool, device=device)
    is_own[ends[row] - placed.num_new[row] : ends[row]] = False
    caches, inputs = (
        ((placed.keys, placed.values), (placed.qkv,))
        if isinstance(placed, Placed)
        else ((placed.keys,), (placed.q, placed.turned))
    )
    for tensor in caches:
        bits = torch.int8 if tensor.itemsize == 1 else tensor.dtype  # float8 cannot be written by a mask
        tensor.view(bits)[foreign] = torch.tensor(number).to(tensor.dtype).view(bits).to(device)
    for tensor in inputs:
        tensor[~is_own] = number
    return is_own
