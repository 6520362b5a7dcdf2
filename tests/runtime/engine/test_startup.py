"""From a published config.json to a plan: what starts with the defaults on a machine with so much memory."""

from typing import Any

import pytest
import torch
from hub_configs import HUB

from ramet.runtime.config import make_args
from ramet.runtime.engine import startup
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.engine.devices.cuda import CudaDevice
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.registry import parse_shape

GIB = 1 << 30


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Llama-2-7b", "Mistral-7B-v0.1", "Qwen2.5-7B"])
def test_a_model_of_8_billion_parameters_starts_with_30_gib_free(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuDevice, "available_bytes", lambda _: 30 * GIB)
    plan = startup.plan_of(make_args(), parse_shape(HUB[name]), torch.bfloat16, CpuDevice())
    assert plan.max_total_tokens > 8192
    assert sum(size for _, size, _ in plan.rows) == 30 * GIB


@pytest.mark.parametrize(
    ("options", "device", "named"),
    [
        ({"attention_backend": "triton"}, "cpu", "--attention-backend is triton, which needs --device cuda"),
        ({"attention_backend": "flashinfer"}, "cpu", "--attention-backend is flashinfer, which needs --device cuda"),
        ({"attention_backend": "gather"}, "cuda", "--attention-backend is gather, which needs --device cpu"),
        ({"attention_backend": "gather", "kv_cache_dtype": "int8"}, "cpu", "--kv-cache-dtype is int8"),
        ({"kv_cache_dtype": "fp8"}, "cpu", "--kv-cache-dtype is fp8"),
        ({"quantization": "fp8"}, "cpu", "--quantization is fp8"),
        ({"quantization": "awq"}, "cpu", "--quantization is awq"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_is_read(
    options: dict[str, Any], device: str, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        startup.check_options(
            make_args(**options), parse_shape(HUB["Qwen2.5-7B"]), CudaDevice() if device == "cuda" else CpuDevice()
        )
