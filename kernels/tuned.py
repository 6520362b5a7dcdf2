"""How attention and products of experts are cut on a GPU: tables for each kind of card, nothing is tried at run time.

Decides tile sizes, warps, pipeline stages and how many programs share the work. Hopper's for attention to keys and
values are by measurement (bench/gpu/tune.py). The others are the nearest that compile without spilling and of which a
multiprocessor holds two programs at least, where head sizes are up to 128 (scripts/compile_kernels.py).
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

import torch

INTERPRETED_PROGRAMS = 3  # they run one after the other there
REGISTERS, MAX_REGISTERS = 65536, 255  # of a multiprocessor, of a thread
RESERVED = 1024  # bytes of shared memory that each program takes beside its own


@dataclass(frozen=True, slots=True)
class Processor:
    """A multiprocessor, after NVIDIA's table of compute capabilities."""

    capability: int  # 10 * major + minor, the first of the cards that are alike
    shared: int  # bytes for all programs that it holds; one can have RESERVED less
    warps: int

    def programs(self, warps: int, registers: int, shared: int) -> int:
        """How many it holds at once of so many warps, registers of a thread and bytes of shared memory."""
        per_warp = -(-registers * 32 // 256) * 256
        by_registers = REGISTERS // per_warp // warps
        return min(by_registers, self.warps // warps, self.shared // (shared + RESERVED), 32)


AMPERE, SMALL = Processor(80, 164 << 10, 64), Processor(89, 100 << 10, 48)
HOPPER, BLACKWELL = Processor(90, 228 << 10, 64), Processor(100, 228 << 10, 64)
PROCESSORS = (AMPERE, SMALL, HOPPER, BLACKWELL)


@dataclass(frozen=True, slots=True)
class DecodeTuning:
    block: int  # keys of a tile
    warps: int
    stages: int  # of which the pipeliner gives half to the slots that keys and values are found by
    per_processor: int  # programs

    def programs(self, device: torch.device) -> int:
        """Programs of a launch, whatever the batch: the card's multiprocessors are shared by that many each."""
        return self.per_processor * processors_of(device)


@dataclass(frozen=True, slots=True)
class ExtendTuning:
    queries: int  # of a tile: tokens times the query heads of a group
    block: int  # keys of a tile
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class GroupedTuning:
    tokens: int  # of a tile, all of one expert
    outputs: int
    inputs: int  # that are multiplied at once
    warps: int
    stages: int


# for head sizes up to 64, up to 128, up to 256, and beyond
HEAD_SIZES = (64, 128, 256)
WIDE = DecodeTuning(16, 4, 2, 2)
WIDE_EXTEND = ExtendTuning(16, 16, 4, 2)
DECODE = {
    AMPERE: (DecodeTuning(64, 4, 3, 4), DecodeTuning(64, 4, 3, 4), DecodeTuning(32, 4, 3, 2), WIDE),
    SMALL: (DecodeTuning(64, 4, 3, 4), DecodeTuning(64, 4, 3, 2), DecodeTuning(32, 4, 3, 2), WIDE),
    HOPPER: (DecodeTuning(128, 4, 3, 6), DecodeTuning(128, 4, 3, 6), DecodeTuning(32, 4, 5, 2), WIDE),
    BLACKWELL: (DecodeTuning(64, 4, 5, 6), DecodeTuning(64, 4, 5, 6), DecodeTuning(32, 4, 5, 2), WIDE),
}
DECODE_FLOAT8 = {  # where they are cut otherwise: widening 128 keys of 128 takes more registers than there are
    HOPPER: (DecodeTuning(128, 4, 3, 6), DecodeTuning(64, 4, 5, 6), DecodeTuning(32, 4, 5, 2), WIDE),
}
EXTEND = {
    AMPERE: (ExtendTuning(32, 32, 4, 3), ExtendTuning(64, 32, 4, 3), ExtendTuning(64, 32, 8, 2), WIDE_EXTEND),
    SMALL: (ExtendTuning(64, 32, 4, 2), ExtendTuning(32, 32, 4, 2), ExtendTuning(64, 32, 8, 2), WIDE_EXTEND),
    HOPPER: (ExtendTuning(64, 64, 4, 3), ExtendTuning(64, 64, 4, 3), ExtendTuning(128, 32, 8, 2), WIDE_EXTEND),
    BLACKWELL: (ExtendTuning(64, 64, 8, 2), ExtendTuning(64, 64, 4, 2), ExtendTuning(64, 32, 8, 2), WIDE_EXTEND),
}
SHARED = {  # of rows that share keys, where they are cut otherwise: 128 queries with heads of 256 spill up to 64 bytes
    HOPPER: (*EXTEND[HOPPER][:2], ExtendTuning(64, 32, 8, 2), WIDE_EXTEND),
}
# of latents: rows that decode, in tiles of 16 and of 32 heads, and rows that extend
DECODE_LATENTS = {
    AMPERE: (DecodeTuning(16, 4, 5, 4), DecodeTuning(32, 8, 3, 2)),
    SMALL: (DecodeTuning(16, 4, 3, 4), DecodeTuning(32, 8, 3, 2)),
    HOPPER: (DecodeTuning(16, 4, 5, 4), DecodeTuning(32, 8, 5, 2)),
    BLACKWELL: (DecodeTuning(16, 4, 5, 4), DecodeTuning(32, 8, 5, 2)),
}
EXTEND_LATENTS = {
    AMPERE: ExtendTuning(32, 64, 8, 3),
    SMALL: ExtendTuning(32, 32, 8, 3),
    HOPPER: ExtendTuning(32, 64, 8, 3),
    BLACKWELL: ExtendTuning(32, 64, 8, 3),
}
FLOAT32_LATENTS = DecodeTuning(16, 8, 3, 2), ExtendTuning(16, 16, 8, 3)  # the same on every card
# of experts that get up to 16, up to 64, and more tokens each
TOKENS_OF_EXPERT = (16, 64)
GROUPED = {
    AMPERE: (GroupedTuning(16, 64, 64, 4, 5), GroupedTuning(64, 64, 64, 4, 4), GroupedTuning(64, 128, 32, 8, 4)),
    SMALL: (GroupedTuning(16, 64, 64, 4, 4), GroupedTuning(64, 64, 64, 4, 3), GroupedTuning(64, 128, 32, 8, 3)),
    HOPPER: (GroupedTuning(16, 64, 128, 4, 4), GroupedTuning(64, 64, 64, 4, 5), GroupedTuning(128, 128, 64, 8, 3)),
    BLACKWELL: (GroupedTuning(16, 64, 128, 4, 4), GroupedTuning(64, 64, 64, 4, 5), GroupedTuning(128, 64, 64, 8, 4)),
}


@cache
def processors_of(device: torch.device) -> int:
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def processor_of(device: torch.device) -> Processor:
    """In the interpreter Hopper's."""
    return processor_with(*torch.cuda.get_device_capability(device)) if device.type == "cuda" else HOPPER


def processor_with(major: int, minor: int) -> Processor:
    """A card that is newer than this table counts as one with the least shared memory."""
    if major in (10, 11):
        return BLACKWELL
    return {(8, 0): AMPERE, (9, 0): HOPPER}.get((major, minor), SMALL)


def launched(warps: int, head_dim: int = 0, ahead: bool = False) -> dict[str, int | None]:
    """How a program of so many warps is compiled: of more than four, or where tokens see `ahead`, a thread is told how
    many registers it may have.

    A multiprocessor holds two programs then, or one for head sizes beyond 128. The assembler chooses fewer by itself,
    and spills: Triton 3.6's for Blackwell, and of those that see ahead 3.9's for 8.0, with heads of 128 numbers.
    """
    programs, told = 2 if head_dim <= 128 else 1, ahead or warps > 4
    return {"num_warps": warps, "maxnreg": min(MAX_REGISTERS, REGISTERS // (programs * 32 * warps)) if told else None}


def decode_tuning(head_dim: int, processor: Processor = HOPPER, float8: bool = False) -> DecodeTuning:
    """`float8`: keys and values in the pool are."""
    table = DECODE_FLOAT8.get(processor, DECODE[processor]) if float8 else DECODE[processor]
    return table[bisect_left(HEAD_SIZES, head_dim)]


def extend_tuning(head_dim: int, processor: Processor = HOPPER) -> ExtendTuning:
    return EXTEND[processor][bisect_left(HEAD_SIZES, head_dim)]


def shared_tuning(head_dim: int, processor: Processor = HOPPER) -> ExtendTuning:
    """The tiles of rows that decode and share keys: `queries` are those of many rows."""
    return SHARED.get(processor, EXTEND[processor])[bisect_left(HEAD_SIZES, head_dim)]


def latent_decode_tuning(lanes: int, itemsize: int, processor: Processor = HOPPER) -> DecodeTuning:
    """The tuning of tiles of 16 or 32 heads, over a pool of numbers of so many bytes."""
    return FLOAT32_LATENTS[0] if itemsize == 4 else DECODE_LATENTS[processor][lanes > 16]


def latent_extend_tuning(itemsize: int, processor: Processor = HOPPER) -> ExtendTuning:
    return FLOAT32_LATENTS[1] if itemsize == 4 else EXTEND_LATENTS[processor]


def grouped_tuning(tokens: float, processor: Processor = HOPPER) -> GroupedTuning:
    """`tokens` of an expert, on average."""
    return GROUPED[processor][bisect_left(TOKENS_OF_EXPERT, tokens)]
