"""FlashInfer's own kernels, where the package is installed, equal the oracle beside rows that decode by ours."""

import pytest
import torch
from flashinfer_step import LAYERS, Step, backend

pytestmark = pytest.mark.gpu
pytest.importorskip("flashinfer")
NEAR = {torch.float16: 5e-3, torch.bfloat16: 4e-2}


@pytest.mark.parametrize("cache", ["", "float8_e4m3fn"])
@pytest.mark.parametrize("dtype", list(NEAR), ids=str)
@pytest.mark.parametrize("rows", [[(5, 1), (30, 1), (0, 7), (20, 13), (3, 2)], [(0, 1), (7, 1)], [(0, 33), (40, 5)]])
def test_prompts_and_decoding_rows(rows: list[tuple[int, int]], dtype: torch.dtype, cache: str) -> None:
    step = Step(rows, dtype, cache)
    attention = backend(step)
    attention.plan(step.inputs)
    for layer in range(len(LAYERS)):
        found, meant = step.attended(attention, layer)
        assert (found.float() - meant.float()).abs().max().item() < NEAR[dtype]
