"""One pool of OpenMP threads waits at a time: the engine's while it runs, the caller's otherwise."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading, time
import torch
from ramet.runtime.llm import LLM

def pools():
    return len(os.listdir("/proc/self/task")) - threading.active_count()

def settled(wanted):
    end = time.monotonic() + 60
    while pools() != wanted and time.monotonic() < end:
        llm.state()  # a turn of the scheduler
    return pools()

torch.set_num_threads(2)
options = {"num_threads": 2, "max_total_tokens": 8192, "log_level": "error", "overlap": sys.argv[1]}
with LLM(**options) as llm:
    llm.generate("a", {"max_new_tokens": 2})  # what only a first call starts
    base = min([pools() for _ in range(200) if llm.state()])  # the scheduler is idle and has given its pool back
    torch.randn(1000, 1000).sum()
    print(pools() - base)
    stream = llm.stream("a", {"max_new_tokens": 3000, "ignore_eos": True})
    next(stream)
    print(pools() - base)
    stream.close()
    print(settled(base) - base)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_one_pool_of_cpu_threads_waits_in_a_process(overlap: str) -> None:
    program = [sys.executable, "-c", PROGRAM, overlap]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=300, check=True)
    assert ran.stdout.split() == ["1", "1", "0"], ran.stderr
