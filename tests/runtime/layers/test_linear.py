"""The packed weight computes what the plain one does, and the plain one is gone."""

import pytest
import torch

from ramet.runtime.layers.modules import Linear, pack_linears, packing_pays

CPU = torch.device("cpu")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tokens", [1, 7, 129])
def test_packed_equals_plain(tokens: int, bias: bool) -> None:
    if not packing_pays(torch.bfloat16, CPU):
        pytest.skip("this CPU has no bfloat16 instructions")
    layer = Linear(96, 80, bias=bias, dtype=torch.bfloat16)
    for parameter in layer.parameters():
        parameter.data.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.randn(tokens, 96).bfloat16()
    with torch.inference_mode():
        plain = layer(x)
        pack_linears(layer)
        torch.testing.assert_close(layer(x), plain, rtol=2**-7, atol=2**-4)
    assert layer.weight is None


def test_float32_is_never_packed() -> None:
    assert not packing_pays(torch.float32, CPU)
