"""Attention without an extend kernel: a row with a cached prefix gathers all its keys and values, then attends densely.

What a runtime with only a prompt kernel and a decode kernel would do of a cached prefix: copy it beside the new tokens
into one contiguous buffer, under one mask. Kept to measure what extending in place saves ("No Extend Kernel" in section
6.4.2 of the SGLang paper). Decoding rows, and prompts without a cached prefix, take the way of the cpu backend.
"""

from torch import Tensor

from ramet.kernels.attention_call import AttendCall
from ramet.runtime.attention.cpu import CpuAttention
from ramet.runtime.attention.long_extends import LongRow, attend_densely, attend_row


class GatheredAttention(CpuAttention):
    name = "gather"
    long_extend = 2  # one new token is decoding

    @staticmethod
    def attend_row(row: LongRow, call: AttendCall) -> Tensor:
        if not len(row.prefix):
            return attend_row(row, call)
        k, v = (pool.index_select(0, row.slots) for pool in (call.keys, call.values))
        return attend_densely(row, call, k, v)
