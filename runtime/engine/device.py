"""Facts about the device a step runs on: which one, how much memory, how many threads. Decides none of the limits.

A container's limit counts as much as the machine's: the smaller of both is what is available.
"""

import os
from pathlib import Path

import torch

from ramet.runtime.errors import ConfigError

CGROUP = Path("/sys/fs/cgroup")
SMALL_MODEL_BYTES = (
    16 << 20
)  # about 1 ms of reading; a step has some 100 parallel regions, each a wait for every thread


def choose_device(name: str) -> torch.device:
    """`name` is auto, cpu or cuda."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device is cuda, but torch finds no CUDA device: use cpu or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def available_bytes(device: torch.device) -> int:
    """Memory that could be taken now without swapping."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limits = [_machine_bytes(), *_container_bytes(CGROUP)]
    return min(limits)


def worthwhile_threads(weight_bytes: int) -> int:
    """One thread for a model that a core reads in less time than threads need to meet, else one a core."""
    return 1 if weight_bytes < SMALL_MODEL_BYTES else usable_cores()


def usable_cores() -> int:
    """The cores this process may use, a container's share rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([cores, *_container_cores(CGROUP)])


def _machine_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return int(rest.split()[0]) * 1024
    except OSError:
        pass  # not Linux: the whole memory is the best that is known
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_bytes(root: Path) -> list[int]:
    """What a memory limit of this container leaves, for both versions of control groups; empty without a limit."""
    files = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
    found = []
    for limit_name, used_name in files:
        limit, used = _number(root / limit_name), _number(root / used_name)
        if limit is not None and used is not None and limit < 1 << 60:  # version 1 writes a huge number for "no limit"
            found.append(max(0, limit - used))
    return found


def _container_cores(root: Path) -> list[int]:
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return []
    return [] if quota == "max" else [max(1, -(-int(quota) // int(period)))]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or the word "max"
        return None
