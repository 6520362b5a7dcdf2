"""The ops of latent attention equal their oracle: layers of heads, latents beside what turns, groups by their best."""

import pytest
import torch
from compiled import compiled_kernels
from torch import Tensor

from ramet.kernels import gpu_ops, reference, reference_latent
from ramet.kernels.attention_call import AttendCall, AttentionRule
from ramet.kernels.reference_experts import RouteRule, route
from ramet.kernels.reference_latent import latent_attention
from ramet.runtime.layers.experts import ExpertLinears
from ramet.runtime.layers.modules import pack_linears
from ramet.runtime.weights.packing import packer_of

CLOSE = {torch.float32: 2e-5, torch.bfloat16: 2**-6, torch.float16: 2**-8}


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def heads_of(num: int, num_in: int, num_out: int, dtype: torch.dtype) -> ExpertLinears:
    layers = ExpertLinears(num, num_in, num_out, dtype)
    for i, layer in enumerate(layers):
        assert layer.weight is not None
        layer.weight.copy_(randn(num_out, num_in, seed=i) * num_in**-0.5)
    return layers


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("num", "num_in", "num_out"), [(1, 16, 16), (3, 20, 33), (16, 128, 512), (5, 72, 8)])
@pytest.mark.parametrize("tokens", [1, 7, 65])
def test_each_head_has_a_layer_of_its_own(tokens: int, num: int, num_in: int, num_out: int, dtype: torch.dtype) -> None:
    """Of queries whose other numbers lie behind those that are multiplied."""
    ops = compiled_kernels()
    x = randn(tokens, num, num_in + 5, seed=tokens, dtype=dtype)[..., :num_in]
    with torch.inference_mode():
        layers = heads_of(num, num_in, num_out, dtype)
        wanted = torch.stack([x[:, h].double() @ layer.weight.double().T for h, layer in enumerate(layers)], dim=1)  # type: ignore[union-attr]
        torch.testing.assert_close(reference.of_heads(layers, x).double(), wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])
        pack_linears(layers, packer_of("plain", 128, ops), None)
        torch.testing.assert_close(ops.of_heads(layers, x).double(), wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])
        layers = heads_of(num, num_in, num_out, dtype)
        layers.stack()
        torch.testing.assert_close(gpu_ops.of_heads(layers, x).double(), wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("latent", "turned"), [(512, 64), (40, 16), (7, 2)])
def test_latents_are_stored_beside_what_turns(latent: int, turned: int, dtype: torch.dtype) -> None:
    ops = compiled_kernels()
    pools = [torch.zeros(20, 1, latent + turned, dtype=dtype) for _ in range(2)]
    x, slots = randn(9, latent + turned, seed=1, dtype=dtype), torch.randperm(20)[:9]
    for pool, kernels in zip(pools, (ops, reference), strict=True):
        kernels.store_latents(x[:, :latent].contiguous(), x[:, None, latent:], pool, slots)
    assert torch.equal(*pools) and torch.equal(pools[0][slots, 0], x)
    assert pools[0].count_nonzero() == x.count_nonzero()


@pytest.mark.parametrize("most", [1, 200, 1 << 26])
def test_latents_are_keys_and_values_of_all_heads(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As attention with the one head of keys, whatever is computed at once."""
    monkeypatch.setattr(reference_latent, "MAX_SCORES", most)
    keys, q, table = randn(60, 1, 28, seed=1), randn(9, 3, 28, seed=2), torch.randperm(60)[None].repeat(3, 1)
    num_new, lens, rule = [1, 6, 2], [40, 6, 30], AttentionRule(0.3)
    call = AttendCall(q, None, None, keys, keys[..., :20], table, rule)
    wanted = reference.extend_attention(call, [0, 1, 2], num_new, lens)
    torch.testing.assert_close(latent_attention(q, keys, 20, table, num_new, lens, rule.scale), wanted)


@pytest.mark.parametrize("rule", [RouteRule(3, False, groups=4, kept_groups=2, of_group=1, scale=16.0)])
def test_groups_are_judged_by_their_best(rule: RouteRule) -> None:
    """The group of expert 7 has the best one, that of 4 and 5 the largest sum of two."""
    logits = torch.tensor([[0.0, 0.0, 1.0, 1.0, 3.0, 3.0, 0.0, 3.2], [0.0, 2.0, 0.0, 1.9, 1.0, 1.8, 1.7, 1.7]])
    wanted, weights = route(logits, rule)
    assert wanted.tolist() == [[7, 4, 5], [1, 3, 0]]
    torch.testing.assert_close(weights, 16 * torch.softmax(logits, 1).gather(1, wanted.long()))
    experts, compiled = compiled_kernels().route(logits, rule)
    assert torch.equal(experts, wanted)
    torch.testing.assert_close(compiled, weights)
    assert route(logits, RouteRule(1, False, groups=4, kept_groups=1))[0].tolist() == [[4], [6]]
