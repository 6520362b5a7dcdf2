"""The compiled ops behind the signatures of kernels/reference.py.

Decide nothing: they take addresses and sizes out of tensors. Every tensor is on the CPU, of float32, bfloat16 or
float16 (keys and values of int8 as well); the last dimension is contiguous.
"""

from functools import cached_property

from ramet.kernels.cpu.adapters import NativeChanges
from ramet.kernels.cpu.attention import AttentionOps
from ramet.kernels.cpu.experts import ExpertOps
from ramet.kernels.cpu.sampling import SamplingOps
from ramet.kernels.cpu.weights import packers_of
from ramet.kernels.packers import Packers


class CpuOps(AttentionOps, ExpertOps, SamplingOps):
    """Fits the Ops protocol of the layers and the SamplingKernel of the epilogue."""

    @cached_property
    def packers(self) -> Packers:
        return packers_of(self)

    def layer_changes(self, num_out: int, num_slots: int, by_rows: bool) -> NativeChanges:
        return NativeChanges(self, num_slots, by_rows)
