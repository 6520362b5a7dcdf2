"""Ctrl-C ends every wait of the main thread, also where the signal comes before the wait has begun.

_thread.interrupt_main() notes a signal as the operating system's does, and breaks no wait: what a signal that comes at
that moment does.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import _thread, asyncio, signal, sys, threading, time
from ramet import flush_cache, function, gen
from tests.fakes.services import Service

signal.signal(signal.SIGINT, signal.default_int_handler)
service = Service()
service.held = {"slow"}

@function
def program(s):
    s += "slow" + gen("x")

@function
async def program_async(s):
    s += "slow" + gen("x")
    await s["x"]

@function
async def declares(s):
    await asyncio.sleep(3600)
    s["x"] = ""

async def for_ever():
    await asyncio.sleep(3600)

service.flush_cache = for_ever

def interrupt():
    time.sleep(0.3)
    _thread.interrupt_main()

threading.Thread(target=interrupt).start()
try:
    WAIT
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
WAITS = [
    'program.run(backend=service)["x"]',
    "program.run(backend=service).text()",
    "program.run(backend=service).error()",
    "list(program.run(backend=service, stream=True).text_iter('x'))",
    "program_async.run(backend=service).sync()",
    'declares.run(backend=service, stream=True)["x"]',
    "program.run_batch([(), ()], backend=service)",
    "program_async.run_batch([(), ()], backend=service)",
    "flush_cache(service)",
]


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_right_before_a_wait_ends_it(wait: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("WAIT", wait)],
        capture_output=True, text=True, env=environment, timeout=30, check=False,
    )  # fmt: skip
    assert ran.stdout == "interrupted\n", ran.stderr
