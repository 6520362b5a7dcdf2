"""What this process may use: the machine's, or less where a container's limit says so."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ramet.runtime.machine import (
    BIND,
    DEFAULT,
    INTERLEAVE,
    available_memory,
    memory_nodes,
    memory_policy,
    read_list,
    set_memory_policy,
    usable_cores,
)


def machine(root: Path, available_kib: int, files: dict[str, str]) -> Path:
    """A file system with the machine's memory and the files of a control group."""
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 4096 * 1024),
        ({"memory.max": "max\n", "memory.current": "7\n"}, 4096 * 1024),
        ({"memory.max": "1000000\n", "memory.current": "400000\n"}, 600_000),
        (
            {
                "memory.max": "1000000\n",
                "memory.current": "900000\n",
                "memory.stat": "anon 1\nactive_file 400000\ninactive_file 200000\nslab_reclaimable 50000\n",
            },
            750_000,
        ),
        (
            {
                "memory/memory.limit_in_bytes": "1000\n",
                "memory/memory.usage_in_bytes": "900\n",
                "memory/memory.stat": "active_file 1\ntotal_active_file 400\ntotal_inactive_file 100\n",
            },
            600,
        ),
        ({"memory/memory.limit_in_bytes": "500\n", "memory/memory.usage_in_bytes": "900\n"}, 0),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "9\n"}, 4096 * 1024),
    ],
)
def test_a_containers_memory_counts_where_it_is_less(tmp_path: Path, files: dict[str, str], available: int) -> None:
    assert available_memory(machine(tmp_path, 4096, files)) == available


def test_without_proc_the_whole_memory_is_what_is_known(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("share", "cores"), [("150000 100000\n", 2), ("10000 100000\n", 1), ("max 100000\n", 4), ("", 4)]
)
def test_a_containers_share_of_cores_is_rounded_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    files = {"cpu.max": share} if share else {}
    assert usable_cores(machine(tmp_path, 1, files)) == cores


def test_a_list_of_cores_as_the_kernel_writes_it() -> None:
    assert read_list("0-2,8\n") == {0, 1, 2, 8} and read_list("5") == {5} and read_list("\n") == set()
    for wrong in ("x", "3-1", "-1", "1-", "1,,x"):
        with pytest.raises(ValueError, match=r".*"):
            read_list(wrong)


def test_the_cores_of_each_memory_node(tmp_path: Path) -> None:
    for node, cores in (("node0", "0-3,8\n"), ("node1", "4-7\n")):
        (tmp_path / "sys/devices/system/node" / node).mkdir(parents=True)
        (tmp_path / "sys/devices/system/node" / node / "cpulist").write_text(cores)
    (tmp_path / "sys/devices/system/node/power").mkdir()
    assert memory_nodes(tmp_path) == {0: {0, 1, 2, 3, 8}, 1: {4, 5, 6, 7}}
    assert memory_nodes(tmp_path / "nothing") == {}


@pytest.mark.skipif(sys.platform != "linux", reason="calls of Linux")
def test_the_kernel_says_the_policy_that_was_set() -> None:
    found = []

    def on_a_thread_of_its_own() -> None:
        found.append(memory_policy())
        if set_memory_policy((0,)):
            found.append(memory_policy())
        assert set_memory_policy(())
        found.append(memory_policy())

    thread = threading.Thread(target=on_a_thread_of_its_own)
    thread.start()
    thread.join()
    assert found == [(DEFAULT, ()), (BIND, (0,)), (DEFAULT, ())]
    assert not set_memory_policy((1000,)), "there is no such node"
    assert INTERLEAVE != BIND


KEEPING = """
import sys
from ramet.runtime.machine import keep_freed_blocks, unmap_large_blocks

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) >> 8  # MiB

if sys.argv[1] == "unmapped":
    unmap_large_blocks()
if sys.argv[1] == "kept":
    keep_freed_blocks(8 << 20)
bytes(24 << 20)
before, kept = resident(), []
for _ in range(8):
    blocks = [bytearray(16 << 20) for _ in range(4)]
    kept.append(bytearray(100_000))  # behind them
    del blocks
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and other systems have another malloc")
def test_large_blocks_go_back_to_the_system_whatever_lies_behind_them() -> None:
    kept = [
        int(subprocess.run([sys.executable, "-c", KEEPING, how], capture_output=True, check=True).stdout)
        for how in ("default", "unmapped", "kept")
    ]
    assert max(kept[1:]) < 8 < kept[0]


PAGES = """
import resource, sys
from ramet.runtime.machine import keep_freed_blocks, unmap_large_blocks

[unmap_large_blocks, lambda: keep_freed_blocks(8 << 20)][sys.argv[1] == "kept"]()

def copy():
    copies = [bytearray(1 << 20) for _ in range(4)]

copy()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    copy()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another malloc")
def test_blocks_of_a_mib_take_their_pages_once_where_they_are_kept() -> None:
    taken = [
        int(subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, check=True).stdout)
        for how in ("unmapped", "kept")
    ]
    assert taken[0] > 9000 and taken[1] < 300, "a MiB has 256 pages"
