"""The device a step runs on: which one, how much of its memory is free, how many threads pay. Decides no limits."""

import torch

from ramet.runtime.errors import ConfigError
from ramet.runtime.machine import available_memory, usable_cores

# about 1 ms of reading; a step has some 100 parallel regions, each a wait for every thread
SMALL_MODEL_BYTES = 16 << 20


def choose_device(name: str) -> torch.device:
    """`name` is auto, cpu or cuda."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device is cuda, but torch finds no CUDA device: use cpu or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def available_bytes(device: torch.device) -> int:
    """Memory that could be taken now, without swapping on a CPU."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()


def worthwhile_threads(weight_bytes: int) -> int:
    """One thread for a model that a core reads in less time than threads need to meet, else one a core."""
    return 1 if weight_bytes < SMALL_MODEL_BYTES else usable_cores()
