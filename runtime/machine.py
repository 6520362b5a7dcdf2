"""How much memory and how many cores this process may use. Decides that a container's limit counts as the machine's.

Reads /proc, /sys and both versions of control groups, and has the calls of Linux by which memory comes from chosen
nodes, and when memory is looked for or given back; knows no device and no torch. `root` is where the file system
begins.
"""

import ctypes
import gc
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path("/")
GC_THRESHOLDS = (20_000, 100, 50)  # of as many new objects a look takes 2 to 10 ms, if all are there still
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
UNMAPPED_BYTES = 1 << 20
MIN_CAPABILITY = (8, 0)  # of a CUDA device (Ampere): matrix instructions for bfloat16, asynchronous copies
NODES = "sys/devices/system/node"
SYSCALLS = {"x86_64": (238, 239), "aarch64": (237, 236)}  # numbers of set_mempolicy and get_mempolicy
DEFAULT, BIND, INTERLEAVE = 0, 2, 3  # policies of set_mempolicy(2)
MAX_NODES = 1024
GROUPS = "sys/fs/cgroup"
NO_LIMIT = 1 << 60  # version 1 of control groups writes a number above this where there is no limit
MEMORY_FILES = (  # limit, used, details: version 2, version 1
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
PAGE_CACHE = ("inactive_file", "active_file", "slab_reclaimable")  # of the details: what is given up before anything is


def available_memory(root: Path = ROOT) -> int:
    """Bytes that could be taken now without swapping: of the machine, or what its container's limit leaves."""
    return min([_free_on_machine(root), *_left_in_container(root)])


def trim_heap() -> None:
    """Give back to the system what malloc keeps for later, where it can be asked to (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def usable_cores(root: Path = ROOT) -> int:
    """The cores this process may use, a container's share rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([cores, *_cores_of_container(root)])


def read_list(text: str) -> frozenset[int]:
    """ "0-2,8" as the kernel and people write lists of cores and nodes. Raises ValueError."""
    found = set[int]()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.strip().partition("-")
        numbers = range(int(first), int(last if dash else first) + 1)
        if not numbers or numbers.start < 0:
            raise ValueError(text)
        found.update(numbers)
    return frozenset(found)


def memory_nodes(root: Path = ROOT) -> dict[int, frozenset[int]]:
    """The cores of each memory node; empty where the system does not say."""
    found = {}
    for path in (root / NODES).glob("node[0-9]*/cpulist"):
        try:
            found[int(path.parent.name.removeprefix("node"))] = read_list(path.read_text())
        except (OSError, ValueError):
            return {}
    return found


def set_memory_policy(nodes: Sequence[int]) -> bool:
    """What the calling thread touches first, or a thread that it starts, comes from this node, or in turn from these.

    No node: as the system does by default. False: the system cannot, or does not let us.
    """
    mask = (ctypes.c_ulong * (MAX_NODES // 64))()
    for node in nodes:
        mask[node // 64] |= 1 << node % 64
    policy = (INTERLEAVE if len(nodes) > 1 else BIND) if nodes else DEFAULT
    return _policy_call(0, policy, mask if nodes else None, MAX_NODES if nodes else 0) == 0


def memory_policy() -> tuple[int, tuple[int, ...]] | None:
    """(policy, nodes) of the calling thread; None: the system does not say."""
    policy, mask = ctypes.c_int(-1), (ctypes.c_ulong * (MAX_NODES // 64))()
    if _policy_call(1, ctypes.byref(policy), mask, MAX_NODES, None, 0) != 0:
        return None
    return policy.value, tuple(node for node in range(MAX_NODES) if mask[node // 64] >> node % 64 & 1)


def _policy_call(which: int, *arguments: Any) -> int:
    """set_mempolicy (0) or get_mempolicy (1); glibc has no function for them."""
    numbers = SYSCALLS.get(platform.machine()) if sys.platform == "linux" else None
    if numbers is None:
        return -1
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(numbers[which]), *arguments))


def unmap_large_blocks() -> None:
    """From now on a block of UNMAPPED_BYTES or more goes back to the system as soon as it is freed.

    By default glibc keeps blocks as large as the largest that was freed, below whatever is allocated behind them.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, UNMAPPED_BYTES)


def keep_freed_blocks(num_bytes: int) -> None:
    """From now on so many freed bytes stay at the end of malloc's heap, and blocks of a quarter of them come from it.

    By default glibc gives back what is more than twice the largest block. A page that comes anew from the system takes
    up to 3 us, so a MiB of them takes 20 times as long as to copy it.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, num_bytes // 4)
        libc.mallopt(M_TRIM_THRESHOLD, num_bytes)


def collect_rarely() -> None:
    """Look for garbage rarely: among many new objects that takes longer than making them."""
    gc.set_threshold(*GC_THRESHOLDS)


def collect_all() -> None:
    """Collect garbage, also of what was frozen: it takes long. Nothing is frozen afterwards."""
    gc.unfreeze()
    gc.collect()


def _free_on_machine(root: Path) -> int:
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return int(rest.split()[0]) * 1024
    except OSError:
        pass  # not Linux: the whole memory is the best that is known
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_in_container(root: Path) -> list[int]:
    """Empty without a limit."""
    found = []
    for limit_name, used_name, details_name in MEMORY_FILES:
        limit, used = _number(root / GROUPS / limit_name), _number(root / GROUPS / used_name)
        if limit is not None and used is not None and limit < NO_LIMIT:
            found.append(max(0, limit - max(0, used - _page_cache(root / GROUPS / details_name))))
    return found


def _page_cache(details: Path) -> int:
    """Bytes that count as used and are given up under pressure: a checkpoint that was read once stays there."""
    try:
        pairs = dict(line.split() for line in details.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    own = {name: int(size) for name, size in pairs.items() if size.isdigit()}
    return sum(own.get(f"total_{name}", own.get(name, 0)) for name in PAGE_CACHE)


def _cores_of_container(root: Path) -> list[int]:
    """Empty without a limit."""
    try:
        quota, period = (root / GROUPS / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return []
    return [] if quota == "max" else [max(1, -(-int(quota) // int(period)))]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or the word "max"
        return None
