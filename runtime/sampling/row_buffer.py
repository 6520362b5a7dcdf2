"""What each running row reads next, on the device: a step's draw writes it, the next step gathers from it.

So a step can be launched before the host knows what the step before it drew. M rows of the slot table; row 0 is
padding.
"""

import torch
from torch import Tensor


class RowBuffer:
    """`lengths` is how many tokens a row's sequence has once its last draw is counted, `next_ids` what was drawn."""

    def __init__(self, num_rows: int, device: torch.device) -> None:
        self.lengths = torch.zeros(num_rows, dtype=torch.int32, device=device)  # [M]
        self.next_ids = torch.zeros(num_rows, dtype=torch.int32, device=device)  # [M]

    def advance(self, rows: Tensor, tokens: Tensor) -> None:
        """rows [Q] int64 drew tokens [Q]."""
        self.lengths[rows] += 1
        self.next_ids[rows] = tokens.to(torch.int32)
