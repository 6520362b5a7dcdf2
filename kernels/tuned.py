"""How the attention kernels are cut on a GPU: tables that were chosen by measurement, none of it at run time.

Decides tile sizes, warps, pipeline stages and how many programs share the work. bench/gpu/tune.py measures others.
"""

from dataclasses import dataclass
from functools import cache

import torch

INTERPRETED_PROGRAMS = 3  # they run one after the other there


@dataclass(frozen=True, slots=True)
class DecodeTuning:
    block: int  # keys of a tile
    warps: int
    stages: int  # of which the pipeliner gives half to the slots that keys and values are found by
    per_processor: int  # programs

    def programs(self, device: torch.device) -> int:
        """The same for every batch: the card's multiprocessors are shared by that many each."""
        return self.per_processor * processors_of(device)


@dataclass(frozen=True, slots=True)
class ExtendTuning:
    queries: int  # of a tile: tokens times the query heads of a group
    block: int  # keys of a tile
    warps: int
    stages: int


@cache
def processors_of(device: torch.device) -> int:
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def decode_tuning(head_dim: int) -> DecodeTuning:
    """Head size 128 by bench/gpu/tune.py on an H200, the others after it."""
    if head_dim <= 128:
        return DecodeTuning(block=128, warps=4, stages=3, per_processor=6)
    return DecodeTuning(block=32, warps=4, stages=5, per_processor=2)


def extend_tuning(head_dim: int) -> ExtendTuning:
    """As `decode_tuning`, on an H100. Prompts of many lengths count alike."""
    if head_dim <= 128:
        return ExtendTuning(queries=64, block=64, warps=4, stages=3)
    return ExtendTuning(queries=64, block=32, warps=8, stages=2)
