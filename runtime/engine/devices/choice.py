"""The device a step runs on: which one, and how many threads pay. Decides no limits."""

import logging
from importlib.util import find_spec

import torch

from ramet.kernels.without_triton import MISSING
from ramet.runtime.engine.devices.base import Device
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.machine import MIN_CAPABILITY
from ramet.runtime.options.placement import Cores, num_cores

log = logging.getLogger("ramet")

# about 1 ms of reading; a step has some 100 parallel regions, each a wait for every thread
SMALL_MODEL_BYTES = 16 << 20


def choose_device(name: str) -> Device:
    """`name` is auto, cpu or cuda. auto is cuda where torch finds a device of MIN_CAPABILITY."""
    has_cuda = torch.cuda.is_available()
    if has_cuda and name != "cpu" and find_spec("triton") is None:
        if name == "cuda":
            raise ConfigError(f"--device is cuda, but {MISSING}, or use cpu")
        log.warning("runs on the CPU: %s", MISSING)
        return CpuDevice()
    if name == "cuda" and not has_cuda:
        raise ConfigError(f"--device is cuda, but torch finds no CUDA device{_why_none()}: use cpu or auto")
    if name == "auto" and not has_cuda and "too old" in (why := _why_none()):
        log.warning("runs on the CPU: torch finds no CUDA device%s", why)
    if name == "auto" and has_cuda:
        capability = torch.cuda.get_device_capability()
        name = "cuda" if capability >= MIN_CAPABILITY else "cpu"
        if name == "cpu":
            log.warning(
                "runs on the CPU: the CUDA device has compute capability %d.%d, and auto takes one of %d.%d or more; "
                "--device cuda tries it all the same", *capability, *MIN_CAPABILITY,
            )  # fmt: skip
    if name != "cuda":
        return CpuDevice()
    from ramet.runtime.engine.devices.cuda import CudaDevice  # loads triton

    return CudaDevice()


def _why_none() -> str:
    """What torch says of a CUDA device that it does not find, behind a comma: of an old driver its version."""
    if not torch.version.cuda:
        return ", as it was built without CUDA"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f", for {describe(error).partition('. ')[0]}"
    return ""


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
