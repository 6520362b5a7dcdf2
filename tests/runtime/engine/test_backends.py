"""Which attention a model gets, and that the log says it once, layer by layer."""

import logging
from collections.abc import Iterator

import pytest
import torch
from recording_device import CUDA, recording_device

from ramet.kernels import reference
from ramet.runtime.attention.base import LayerAttention
from ramet.runtime.attention.latent import LatentSizes
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.engine.devices.base import AttentionSpec
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.engine.devices.cuda import CudaDevice
from ramet.runtime.engine.devices.layers import describe
from ramet.runtime.errors import ConfigError

PLAIN, WINDOW, BOTH = LayerAttention(0.25), LayerAttention(0.25, 8), LayerAttention(0.25, 8, 50.0)


def pool(head_dim: int) -> KVPool:
    sizes = dict(max_total_tokens=16, page_size=1, layers=[KVShape.of(1, head_dim)] * 2)
    return KVPool(**sizes, dtype=torch.float32, device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A device that starts sets those of torch."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def started() -> CpuDevice:
    device = CpuDevice()
    device.start(2)
    return device


def test_layers_are_described_by_what_they_do() -> None:
    assert describe([PLAIN] * 3) == "layers 0-2 plain"
    assert describe([PLAIN]) == "layer 0 plain"
    gemma2 = describe([BOTH, LayerAttention(0.25, None, 50.0)] * 2)
    assert gemma2 == "layers 0, 2 with window 8 and soft cap 50; layers 1, 3 with soft cap 50"
    shared = [LayerAttention(1.0, sinks=True), LayerAttention(1.0, 8, keys_of=0)]
    assert describe(shared) == "layer 0 with sinks; layer 1 with window 8 and keys of layer 0"
    assert describe([*[WINDOW] * 5, PLAIN, WINDOW]) == "layers 0-4, 6 with window 8; layer 5 plain"


@pytest.mark.parametrize(
    ("name", "head_dim", "chosen"), [("auto", 32, "cpu"), ("auto", 20, "reference"), ("reference", 32, "reference")]
)
def test_the_log_says_which_way_the_layers_go(
    name: str, head_dim: int, chosen: str, caplog: pytest.LogCaptureFixture
) -> None:
    device = started()
    compiled = device.ops is not reference
    with caplog.at_level(logging.INFO, "ramet"):
        spec = AttentionSpec(pool(head_dim), 2, [WINDOW, PLAIN], 4, torch.float32)
        assert device.attention(name, spec).name == chosen
    (record,) = [r.getMessage() for r in caplog.records if "attention" in r.getMessage()]
    assert "layer 0 with window 8; layer 1 plain" in record
    assert ("C++ kernel" in record) == (chosen == "cpu" and compiled) and ("reference" in record) == (chosen != "cpu")


def test_the_cpu_backend_is_refused_for_a_head_size_it_is_not_compiled_for() -> None:
    with pytest.raises(ConfigError, match="head size 20"):
        started().attention("cpu", AttentionSpec(pool(20), 2, [WINDOW, PLAIN], 4, torch.float32))


@pytest.mark.parametrize(
    ("name", "latent", "rotated", "chosen"),
    [("auto", 512, 64, "triton"), ("triton", 40, 16, "triton"), ("reference", 512, 64, "reference"),
     ("auto", 1024, 64, "reference"), ("auto", 512, 128, "reference"), ("triton", 1024, 64, "1024 and 64"),
     ("flashinfer", 512, 64, "reads no latents on cuda"), ("cpu", 512, 64, "reads no latents on cuda")],
)  # fmt: skip
def test_latents_on_a_gpu_are_read_by_our_kernels_unless_they_are_too_large(
    name: str, latent: int, rotated: int, chosen: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = LatentSizes(latent=latent, rotated=rotated, content=24, value=20, query_latent=None)
    with recording_device(monkeypatch), caplog.at_level(logging.INFO, "ramet"):
        shapes = [KVShape(1, sizes.key, 0)]
        of_latents = KVPool(max_total_tokens=16, page_size=1, layers=shapes, dtype=torch.bfloat16, device=CUDA)
        device, spec = CudaDevice(), AttentionSpec(of_latents, 4, [PLAIN], 4, torch.bfloat16, sizes)
        if chosen in ("triton", "reference"):
            assert device.attention(name, spec).name == chosen
            assert ("plain torch" in caplog.text) == (chosen == "reference")
        else:
            with pytest.raises(ConfigError, match=chosen):
                device.attention(name, spec)
