"""The device a step runs on: which one, how much of its memory is free, how many threads pay. Decides no limits."""

import logging

import torch

from ramet.runtime.errors import ConfigError
from ramet.runtime.machine import LEAST_CAPABILITY, available_memory
from ramet.runtime.placement import Cores, num_cores

log = logging.getLogger("ramet")

# about 1 ms of reading; a step has some 100 parallel regions, each a wait for every thread
SMALL_MODEL_BYTES = 16 << 20


def choose_device(name: str) -> torch.device:
    """`name` is auto, cpu or cuda. auto is cuda where torch finds a device of LEAST_CAPABILITY."""
    if name == "cuda" and not torch.cuda.is_available():
        built = "" if torch.version.cuda else ", as it was built without CUDA"
        raise ConfigError(f"--device is cuda, but torch finds no CUDA device{built}: use cpu or auto")
    if name == "auto" and torch.cuda.is_available():
        capability = torch.cuda.get_device_capability()
        name = "cuda" if capability >= LEAST_CAPABILITY else "cpu"
        if name == "cpu":
            log.warning(
                "runs on the CPU: the CUDA device has compute capability %d.%d, and auto takes one of %d.%d or more; "
                "--device cuda tries it all the same", *capability, *LEAST_CAPABILITY,
            )  # fmt: skip
    return torch.device("cuda" if name == "cuda" else "cpu")


def available_bytes(device: torch.device) -> int:
    """Memory that could be taken now, without swapping on a CPU."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()


def choose_threads(asked: int | None, weight_bytes: int, cores: Cores | None) -> int:
    """Those asked for; else one for a model that a core reads in less time than threads need to meet, or one a core.

    `cores`: those that the model has; None: any.
    """
    usable = num_cores(cores)
    if asked is not None:
        if asked > usable:
            of = f"{usable} core{'s' * (usable > 1)}"
            log.warning("--num-threads is %d, of %s: threads that take turns cost time", asked, of)
        return asked
    return 1 if weight_bytes < SMALL_MODEL_BYTES else usable
