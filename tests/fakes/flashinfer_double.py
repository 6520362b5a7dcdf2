"""The part of the package flashinfer that ramet calls, in plain torch; what it takes and when it copies are that one's.

Its plan is written to pinned memory and copied to the device from there; a run reads what was copied. A slow test
holds the parameters against those of the published wheel.
"""

from typing import Any

import torch
from torch import Tensor

MOST = 64  # numbers of a plan


class BatchPrefillWithPagedKVCacheWrapper:
    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        assert float_workspace_buffer.dtype == torch.uint8 and kv_layout == "NHD"
        self._pinned = torch.zeros(MOST, dtype=torch.int32, pin_memory=True)
        self._on_device = torch.zeros(MOST, dtype=torch.int32, device=float_workspace_buffer.device)

    def plan(
        self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor,
        num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int, *, causal: bool, sm_scale: float,
        window_left: int, logits_soft_cap: float, q_data_type: torch.dtype, kv_data_type: torch.dtype,
    ) -> None:  # fmt: skip
        for starts in (qo_indptr, paged_kv_indptr, paged_kv_last_page_len, paged_kv_indices):
            assert starts.dtype == torch.int32
        assert causal and page_size == 1 and paged_kv_last_page_len.tolist() == [1] * (len(qo_indptr) - 1)
        assert paged_kv_indptr[-1] == len(paged_kv_indices) and paged_kv_indices.device == self._on_device.device
        self._rows = list(zip(qo_indptr.tolist(), qo_indptr.tolist()[1:], paged_kv_indptr.tolist(), strict=False))
        self._slots, self._ends = paged_kv_indices, paged_kv_indptr.tolist()[1:]
        self._heads, self._size = (num_qo_heads, num_kv_heads), head_dim_qk
        self._types = q_data_type, kv_data_type
        self._scale, self._window, self._cap = sm_scale, window_left, logits_soft_cap
        self._pinned[: len(qo_indptr)] = qo_indptr
        self._on_device.copy_(self._pinned, non_blocking=True)

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], *, out: Tensor) -> Tensor:
        keys, values = paged_kv_cache
        assert q.is_contiguous() and q.shape[1:] == (self._heads[0], self._size) and q.dtype == self._types[0]
        assert keys.shape[1:] == (1, self._heads[1], self._size) and keys.dtype == self._types[1]
        self._on_device.sum()
        for (first, last, start), end in zip(self._rows, self._ends, strict=True):
            own = self._slots[start:end].long()
            made = self._attend(q[first:last], keys[own, 0], values[own, 0])
            out[first:last] = made.to(out.dtype)
        return out

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = self._heads[0] // self._heads[1]
        k, v = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q.float(), k) * self._scale
        if self._cap > 0:
            scores = (scores / self._cap).tanh() * self._cap
        new, length = len(q), len(k)
        position = torch.arange(length - new, length, device=q.device)[:, None]
        key = torch.arange(length, device=q.device)[None]
        hidden = key > position
        if self._window >= 0:
            hidden = hidden | (key < position - self._window)
        scores = scores.masked_fill(hidden, float("-inf"))
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def parameters_of() -> dict[str, list[Any]]:
    """Of each method, the names that ramet passes by place, then those by name."""
    by_place = ["qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len", "num_qo_heads"]
    by_place += ["num_kv_heads", "head_dim_qk", "page_size"]
    by_name = ["causal", "sm_scale", "window_left", "logits_soft_cap", "q_data_type", "kv_data_type"]
    return {
        "__init__": [["float_workspace_buffer", "kv_layout"], []],
        "plan": [by_place, by_name],
        "run": [["q", "paged_kv_cache"], ["out"]],
    }
