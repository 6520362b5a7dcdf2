"""Scaled embeddings are rounded where transformers rounds them, bit for bit."""

import pytest
import torch

from ramet.kernels import reference
from ramet.runtime.layers.modules import Embedding


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("hidden", [64, 1152, 2304, 3072, 3584])
def test_scaled_rows_equal_those_of_gemma(hidden: int, dtype: torch.dtype) -> None:
    from transformers.models.gemma3.modeling_gemma3 import Gemma3TextScaledWordEmbedding

    theirs = Gemma3TextScaledWordEmbedding(9, hidden, None, embed_scale=hidden**0.5)
    theirs.weight.data = torch.randn(9, hidden, generator=torch.Generator().manual_seed(1)).to(dtype)
    ours = Embedding(9, hidden, scale=hidden**0.5, tied=False, dtype=dtype, ops=reference)
    ours.weight.data = theirs.weight.data
    ids = torch.tensor([8, 0, 3, 3])
    assert torch.equal(ours(ids), theirs(ids))
