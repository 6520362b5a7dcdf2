"""Every configuration of the Triton kernels compiles for a GPU that is not here, within what one has to give."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

MOST_REGISTERS = 128  # two programs of 256 threads fit one multiprocessor
MOST_SHARED = 16384


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "scripts.compile_kernels"]
    made = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    return [json.loads(line) for line in made.stdout.splitlines()]


def test_every_kernel_is_there(compiled: list[dict[str, Any]]):
    assert {each["kernel"] for each in compiled} == {"_adjust", "_draw", "_cut"} and len(compiled) >= 45


def test_nothing_spills_and_two_programs_fit(compiled: list[dict[str, Any]]):
    for each in compiled:
        assert each["stack"] == each["local"] == 0, each
        assert 16 <= each["registers"] <= MOST_REGISTERS and each["shared"] <= MOST_SHARED, each
