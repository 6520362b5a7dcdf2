"""The compiled ops behind the signatures of kernels/reference.py.

Decide nothing: they take addresses and sizes out of tensors. Every tensor is on the CPU, of float32, bfloat16 or
float16 (keys and values of int8 as well); the last dimension is contiguous.
"""

from ramet.kernels.cpu.attention import AttentionOps
from ramet.kernels.cpu.experts import ExpertOps
from ramet.kernels.cpu.sampling import SamplingOps


class CpuOps(AttentionOps, ExpertOps, SamplingOps):
    """Fits the Ops protocol of the layers and the SamplingKernel of the epilogue."""
