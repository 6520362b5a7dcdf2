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
    )


class Rule(Structure):
    """What a layer does with its scores; field for field the struct of attention.cpp. 0 is no window and no cap."""

    _fields_ = (("scale", c_float), ("window", c_int32), ("softcap", c_float))


class CpuOps:
    """Fits the Ops protocol of the layers; `attend` and `store_kv` are for the attention backend."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size, number = c_void_p, c_int64, c_int
        self._rms_norm = library.ramet_rms_norm
        self._rms_norm.argtypes = (
            number,
            pointer,
            size,
            pointer,
            pointer,
            pointer,
            size,
            size,
            c_float,
            number,
            number,
        )
        self._norm_heads = library.ramet_norm_heads
        self._norm_heads.argtypes = (number, pointer, size, pointer, size, size, size, c_float, number, number)
        self._silu_mul = library.ramet_silu_mul
        self._silu_mul.argtypes = (number, pointer, size, pointer, size, size, number)
        self._rotate = library.ramet_rotate
        self._rotate.argtypes = (number, pointer, size, pointer, pointer, pointer, size, size, size, size, number)
        self._attention = library.ramet_attention
        self._attention.argtypes = (POINTER(Plan), POINTER(Rule), number, pointer, size, pointer, pointer, pointer)
        self._store_kv = library.ramet_store_kv
        self._store_kv.argtypes = (number, pointer, pointer, size, size, pointer, pointer, pointer, size, size, number)
        self._penalise = library.ramet_penalise
        self._penalise.argtypes = (pointer, size, *(pointer,) * 5, size, pointer, pointer, size, number)
        self._count_tokens = library.ramet_count_tokens
        self._count_tokens.argtypes = (pointer, size, pointer, pointer, pointer, size)
        self._mask = library.ramet_mask
        self._mask.argtypes = (pointer, size, pointer, size, pointer, size, number)
        self._draw = library.ramet_draw
        self._draw.argtypes = (pointer, size, size, *(pointer,) * 8, number)
        self._normalise = library.ramet_normalise
        self._normalise.argtypes = (pointer, size, pointer, pointer, size, size, pointer, pointer, pointer, number)
        for function in vars(self).values():
            function.restype = None

    @property
    def threads(self) -> int:
        return torch.get_num_threads()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, plus_one: bool = False) -> Tensor:
        return self._norm(x, None, weight, eps, plus_one)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, plus_one: bool = False) -> Tensor:
        return self._norm(x, residual.data_ptr(), weight, eps, plus_one)

    def norm_heads(self, x: Tensor, weight: Tensor, eps: float, plus_one: bool = False) -> None:
        at, w, sizes = x.data_ptr(), weight.data_ptr(), x.shape
        self._norm_heads(DTYPES[x.dtype], at, x.stride(0), w, *sizes, eps, plus_one, self.threads)

    def _norm(self, x: Tensor, residual: int | None, weight: Tensor, eps: float, plus_one: bool) -> Tensor:
        tokens, size = x.shape
        out = torch.empty((tokens, size), dtype=x.dtype)
        at, to, w = x.data_ptr(), out.data_ptr(), weight.data_ptr()
        self._rms_norm(DTYPES[x.dtype], at, x.stride(0), residual, w, to, tokens, size, eps, plus_one, self.threads)
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

    def penalise(
        self,
        logits: Tensor,
        rows: Tensor,
        slots: Tensor,
        frequency: Tensor,
        presence: Tensor,
        repetition: Tensor,
        counts: Tensor,
        seen: Tensor,
    ) -> None:
        """As kernels/reference.py. WRITES logits [Q, V] float32 in `rows`; all tensors are contiguous."""
        columns = (rows, slots, frequency, presence, repetition)
        assert all(column.element_size() == 4 for column in columns), [column.dtype for column in columns]
        assert all(tensor.is_contiguous() for tensor in (logits, *columns, counts, seen))
        addresses = (column.data_ptr() for column in columns)
        state = (counts.data_ptr(), seen.data_ptr(), seen.shape[1])
        self._penalise(logits.data_ptr(), logits.shape[1], *addresses, len(rows), *state, self.threads)

    def count_tokens(self, counts: Tensor, rows: Tensor, slots: Tensor, tokens: Tensor) -> None:
        """As kernels/reference.py. WRITES counts; all tensors are contiguous."""
        assert [t.element_size() for t in (counts, rows, slots, tokens)] == [1, 4, 4, 8]
        assert all(tensor.is_contiguous() for tensor in (counts, rows, slots, tokens))
        addresses = (tensor.data_ptr() for tensor in (rows, slots, tokens))
        self._count_tokens(counts.data_ptr(), counts.shape[1], *addresses, len(rows))

    def mask(self, logits: Tensor, rows: Tensor, allowed: Tensor) -> None:
        """As kernels/reference.py. WRITES logits [Q, V] float32 in `rows`; all tensors are contiguous."""
        kinds = logits.dtype, rows.dtype, allowed.dtype
        assert kinds == (torch.float32, torch.int32, torch.int32), kinds
        assert all(tensor.is_contiguous() for tensor in (logits, rows, allowed))
        num, words = allowed.shape
        assert num == len(rows) and words * 32 >= logits.shape[1], (allowed.shape, logits.shape)
        addresses = logits.data_ptr(), logits.shape[1], rows.data_ptr(), num, allowed.data_ptr(), words
        self._mask(*addresses, self.threads)

    def draw(
        self,
        logits: Tensor,
        temperature: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        min_p: Tensor,
        seeds: Tensor,
        positions: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """As kernels/reference.py; logits [Q, V] float32, all tensors are contiguous."""
        columns = (temperature, top_k, top_p, min_p, seeds, positions)
        sizes = [column.element_size() for column in columns]
        assert sizes == [4, 8, 4, 4, 8, 8] and logits.dtype == torch.float32 and logits.is_contiguous(), sizes
        num, vocabulary = logits.shape
        tokens, finite = torch.empty(num, dtype=torch.int64), torch.empty(num, dtype=torch.bool)
        addresses = (tensor.data_ptr() for tensor in (*columns, tokens, finite))
        self._draw(logits.data_ptr(), vocabulary, num, *addresses, self.threads)
        return tokens, finite

    def normalise(
        self, logits: Tensor, rows: Tensor, temperature: Tensor, num_top: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As kernels/reference.py; logits [Q, V] float32, all tensors are contiguous."""
        kinds = logits.dtype, rows.dtype, temperature.dtype
        assert kinds == (torch.float32, torch.int64, torch.float32) and logits.is_contiguous(), kinds
        vocabulary, num = logits.shape[1], len(rows)
        out = torch.empty(num), torch.empty(num), torch.empty((num, num_top), dtype=torch.int64)
        columns, addresses = (rows.data_ptr(), temperature.data_ptr()), (tensor.data_ptr() for tensor in out)
        self._normalise(logits.data_ptr(), vocabulary, *columns, num, num_top, *addresses, self.threads)
        return out

    def attend(self, plan: Plan, rule: Rule, q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
        """WRITES out [T, H, D] for the tokens of the plan; q may have strided rows."""
        addresses = keys.data_ptr(), values.data_ptr(), out.data_ptr()
        self._attention(byref(plan), byref(rule), DTYPES[q.dtype], q.data_ptr(), q.stride(0), *addresses)
