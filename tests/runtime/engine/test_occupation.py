"""What memory cannot be released, and what cannot be taken again."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_model import make_tiny

from ramet.ipc.control import MemoryTag
from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.config import make_args
from ramet.runtime.engine.devices.base import Device
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.engine.devices.cuda import CudaDevice
from ramet.runtime.engine.occupation import ReleaseHooks, RunnerMemory
from ramet.runtime.engine.reloading import WeightReader
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.transformers.implementation import read_model

Made = Callable[..., RunnerMemory]
DEVICES: dict[str, type[Device]] = {"cpu": CpuDevice, "cuda": CudaDevice}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(device: str = "cpu", weight_bytes: int = 1) -> RunnerMemory:
        args, on = make_args(model_path=str(make_tiny(tmp_path / "m"))), DEVICES[device]()
        shape = read_model(args.model_folder, "{}", "auto")
        weights = WeightReader(args, shape, torch.float32, on, weight_bytes, lambda model, heads: None)
        pool = KVPool(
            max_total_tokens=8, page_size=1, layers=[KVShape.of(1, 4)], dtype=torch.float32, device=torch.device("cpu")
        )
        return RunnerMemory(args, on, pool, weights, weight_bytes, ReleaseHooks(*[lambda: None] * 3))

    return make


@pytest.mark.parametrize("tag", MemoryTag)
def test_nothing_is_released_on_a_gpu(made: Made, tag: MemoryTag) -> None:
    made("cpu").check([tag])
    with pytest.raises(ConfigError, match="on a GPU memory cannot be released"):
        made("cuda").check([tag])


def test_memory_that_others_have_taken_is_not_taken_again(made: Made) -> None:
    memory = made(weight_bytes=1 << 60)
    memory.check_room([MemoryTag.KV_CACHE, MemoryTag.CUDA_GRAPH])
    with pytest.raises(ConfigError, match=r"bytes were released, and .* are free: others have taken them"):
        memory.check_room([MemoryTag.WEIGHTS])
