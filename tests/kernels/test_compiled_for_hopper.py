"""The configurations of the Triton kernels compile for a GPU that is not here, within what one has to give.

All of them in `make test-slow`, every fourth in `make test`: each kernel with each type of logits and each of its flags
on and off.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

MOST_REGISTERS = 128  # two programs of 256 threads fit one multiprocessor
MOST_SHARED = 16384
ALL = 45  # configurations, at least


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=pytest.mark.slow)], ids="every {}".format)
def compiled(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "scripts.compile_kernels", f"--every={request.param}"]
    made = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    lines = [json.loads(line) for line in made.stdout.splitlines()]
    assert len(lines) >= ALL // request.param
    return lines


def test_every_kernel_is_there(compiled: list[dict[str, Any]]):
    assert {each["kernel"] for each in compiled} == {"_adjust", "_draw", "_cut"}


def test_nothing_spills_and_two_programs_fit(compiled: list[dict[str, Any]]):
    for each in compiled:
        assert each["stack"] == each["local"] == 0, each
        assert 16 <= each["registers"] <= MOST_REGISTERS and each["shared"] <= MOST_SHARED, each
