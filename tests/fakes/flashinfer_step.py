"""Not a fake: a step with prompts and rows that decode over a pool of a CUDA device, and what FlashInfer's backend and
the oracle make of it.
"""

import numpy as np
import torch

from ramet.kernels import reference
from ramet.kernels.attention_call import AttendCall
from ramet.runtime.attention.base import ForwardInputs, LayerAttention
from ramet.runtime.attention.flashinfer import FlashInferAttention
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.engine.devices.base import AttentionSpec
from ramet.runtime.engine.devices.cuda import CudaDevice

CUDA = torch.device("cuda", 0)
HEADS, KV_HEADS, HEAD_DIM, CONTEXT, ROWS = 4, 2, 64, 80, 6
LAYERS = [LayerAttention(0.125), LayerAttention(0.125, window=9), LayerAttention(0.1, softcap=5.0)]


class Step:
    """Rows of (cached, new) tokens over a pool, and what a layer is given."""

    def __init__(self, rows: list[tuple[int, int]], dtype: torch.dtype = torch.float16, cache: str = "") -> None:
        chance = np.random.RandomState(len(rows))
        kind = getattr(torch, cache) if cache else dtype
        sizes = dict(layers=[KVShape.of(KV_HEADS, HEAD_DIM)] * len(LAYERS))
        self.pool = KVPool(max_total_tokens=ROWS * CONTEXT, page_size=1, **sizes, dtype=kind, device=CUDA)
        shape = self.pool.keys[0].shape
        for each in (*self.pool.keys, *self.pool.values):
            each.copy_(reference.stored(torch.from_numpy(chance.randn(*shape).astype(np.float32)), kind).to(CUDA))
        self.table = torch.from_numpy(chance.permutation(ROWS * CONTEXT).astype(np.int32)).to(CUDA).view(ROWS, CONTEXT)
        cached, new = np.array(rows, np.int32).T
        tokens = int(new.sum())
        qkv = chance.randn(tokens, HEADS + 2 * KV_HEADS, HEAD_DIM).astype(np.float32)
        self.qkv = torch.from_numpy(qkv).to(dtype).to(CUDA)
        lens = cached + new
        positions = np.concatenate([np.arange(a, b) for a, b in zip(cached, lens, strict=True)])
        owners = np.repeat(np.arange(len(rows)), new)
        slots = self.table[torch.from_numpy(owners).to(CUDA), torch.from_numpy(positions).to(CUDA)].long()
        self.inputs = ForwardInputs(
            token_ids=torch.zeros(tokens, dtype=torch.int64, device=CUDA), positions=slots, slots=slots,
            last_tokens=slots, table=self.table, rows=np.arange(len(rows), dtype=np.int32), num_new=new, seq_lens=lens,
            num_decode=int((new == 1).sum()),
        )  # fmt: skip
        self.dtype = dtype

    def attended(self, attention: FlashInferAttention, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """By the backend, and by the oracle."""
        q, k, v = self.qkv.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        keys, values = attention.cache(layer)
        reference.store_kv(k, v, keys, values, self.inputs.slots)
        found = attention.forward(q, k, v, layer, self.inputs)
        call = AttendCall(q, k, v, keys, values, self.table, LAYERS[layer])
        of = self.inputs.rows.tolist(), self.inputs.num_new.tolist(), self.inputs.seq_lens.tolist()
        return found, reference.extend_attention(call, *of)


def backend(step: Step) -> FlashInferAttention:
    made = CudaDevice().attention("flashinfer", AttentionSpec(step.pool, HEADS, LAYERS, ROWS, step.dtype))
    assert isinstance(made, FlashInferAttention)
    return made
