"""Attention in plain torch on any device: the oracle of the others and the way where no kernel is at hand.

Gathers every row's keys and values, row by row.
"""

import torch
from torch import Tensor

from ramet.kernels import reference as kernels
from ramet.kernels.attention_call import AttendCall
from ramet.runtime.attention.base import AttentionBackend, ForwardInputs


class ReferenceAttention(AttentionBackend):
    name = "reference"

    def plan(self, inputs: ForwardInputs) -> None:
        self._rows, self._num_new, self._seq_lens = (x.tolist() for x in (inputs.rows, inputs.num_new, inputs.seq_lens))

    def attend(self, layer: int, call: AttendCall, inputs: ForwardInputs) -> Tensor:
        key_ends = None if inputs.key_ends is None else torch.from_numpy(inputs.key_ends).to(call.q.device)
        return kernels.extend_attention(call, self._rows, self._num_new, self._seq_lens, key_ends)
