"""Which kernels run on which device: by the name that was asked for and by what is at hand. Knows no model.

On cpu without a C++ compiler torch serves in the place of our kernels, slower, and the log says so.
"""

import logging
from functools import cache
from typing import Protocol

import torch

from ramet.kernels import reference
from ramet.kernels.cpu.build import NoCompiler, load_library
from ramet.kernels.cpu.ops import CpuOps
from ramet.runtime.attention.base import AttentionBackend
from ramet.runtime.attention.cpu import CpuAttention, fits
from ramet.runtime.attention.reference import ReferenceAttention
from ramet.runtime.cache.pool import KVPool
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.ops import Ops
from ramet.runtime.sampling.epilogue import Epilogue, SamplingKernel

log = logging.getLogger("ramet")


class Kernels(Ops, SamplingKernel, Protocol):
    """Everything that a step computes outside of attention and matrix products."""


@cache
def compiled_ops() -> CpuOps | None:
    """The C++ kernels, compiled on the first call on a machine; None where that is not possible."""
    try:
        return CpuOps(load_library())
    except (NoCompiler, OSError) as error:
        log.warning("no C++ kernels, torch runs in their place (slower): %s", error)
        return None


def choose_ops(device: torch.device) -> Kernels:
    compiled = compiled_ops() if device.type == "cpu" else None
    return compiled if compiled is not None else reference


def choose_epilogue(device: torch.device) -> type[Epilogue]:
    if device.type != "cuda":
        return Epilogue
    from ramet.runtime.sampling.fused import FusedEpilogue  # loads triton

    return FusedEpilogue


def choose_attention(name: str, pool: KVPool, heads: int) -> AttentionBackend:
    """`name` is auto, reference or cpu."""
    device = pool.keys[0].device
    possible = device.type == "cpu" and fits(pool)
    if name == "cpu" and not possible:
        raise ConfigError(
            f"--attention-backend is cpu, but the pool is on {device.type} with head size {pool.head_dim}: the backend "
            "needs a cpu and a multiple of 16 up to 256; use auto"
        )
    if name == "reference" or not possible:
        return ReferenceAttention(pool)
    return CpuAttention(pool, heads, compiled_ops())
