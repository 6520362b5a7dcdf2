"""The compiled small ops behind the signatures of kernels/reference.py, and the plan that the attention kernel reads.

Decides nothing: takes addresses and sizes out of tensors. Every tensor is on the CPU, of float32, bfloat16 or float16;
the last dimension is contiguous.
"""

import ctypes
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int32, c_int64, c_void_p

import torch
from torch import Tensor

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class Plan(Structure):
    """Field for field the struct of attention.cpp."""

    _fields_ = (
        ("items", c_void_p),
        ("members", c_void_p),
        ("limits", c_void_p),
        ("partials", c_void_p),
        ("merges", c_void_p),
        ("table", c_void_p),
        ("table_stride", c_int64),
        ("partial_out", c_void_p),
        ("partial_lse", c_void_p),
        ("num_items", c_int32),
        ("num_merges", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("threads", c_int32),
        ("scale", c_float),
    )


class CpuOps:
    """Fits the Ops protocol of the layers; `attend` and `store_kv` are for the attention backend."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size, number = c_void_p, c_int64, c_int
        self._rms_norm = library.ramet_rms_norm
        self._rms_norm.argtypes = (number, pointer, size, pointer, pointer, pointer, size, size, c_float, number)
        self._silu_mul = library.ramet_silu_mul
        self._silu_mul.argtypes = (number, pointer, size, pointer, size, size, number)
        self._rotate = library.ramet_rotate
        self._rotate.argtypes = (number, pointer, size, pointer, pointer, pointer, size, size, size, size, number)
        self._attention = library.ramet_attention
        self._attention.argtypes = (POINTER(Plan), number, pointer, size, pointer, pointer, pointer)
        self._store_kv = library.ramet_store_kv
        self._store_kv.argtypes = (number, pointer, pointer, size, size, pointer, pointer, pointer, size, size, number)
        for function in (self._rms_norm, self._silu_mul, self._rotate, self._attention, self._store_kv):
            function.restype = None

    @property
    def threads(self) -> int:
        return torch.get_num_threads()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self._norm(x, None, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self._norm(x, residual.data_ptr(), weight, eps)

    def _norm(self, x: Tensor, residual: int | None, weight: Tensor, eps: float) -> Tensor:
        tokens, size = x.shape
        out = torch.empty((tokens, size), dtype=x.dtype)
        at, to, w = x.data_ptr(), out.data_ptr(), weight.data_ptr()
        self._rms_norm(DTYPES[x.dtype], at, x.stride(0), residual, w, to, tokens, size, eps, self.threads)
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        tokens, both = gate_up.shape
        out = torch.empty((tokens, both // 2), dtype=gate_up.dtype)
        at, to = gate_up.data_ptr(), out.data_ptr()
        self._silu_mul(DTYPES[gate_up.dtype], at, gate_up.stride(0), to, tokens, both // 2, self.threads)
        return out

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
        tokens, heads, head_dim = x.shape
        at, c, s, p = x.data_ptr(), cos.data_ptr(), sin.data_ptr(), positions.data_ptr()
        half = cos.shape[1]
        self._rotate(DTYPES[x.dtype], at, x.stride(0), c, s, p, tokens, heads, head_dim, half, self.threads)

    def store_kv(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """As kernels/reference.py; k and v [T, G, D] may have strided rows. WRITES keys and values."""
        tokens, kv_heads, head_dim = k.shape
        self._store_kv(
            k.element_size(),
            k.data_ptr(),
            v.data_ptr(),
            k.stride(0),
            v.stride(0),
            keys.data_ptr(),
            values.data_ptr(),
            slots.data_ptr(),
            tokens,
            kv_heads * head_dim,
            self.threads,
        )

    def attend(self, plan: Plan, q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
        """WRITES out [T, H, D] for the tokens of the plan; q may have strided rows."""
        addresses = keys.data_ptr(), values.data_ptr(), out.data_ptr()
        self._attention(byref(plan), DTYPES[q.dtype], q.data_ptr(), q.stride(0), *addresses)
