"""The configurations of the Triton kernels compile for a GPU that is not here, within what one has to give.

All of them in `make test-slow`, every seventh in `make test`: each kernel with each type that models have and each of
its flags on and off.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

MOST = {  # registers of a thread, bytes of shared memory: what one multiprocessor has for so many programs
    "_decode": (65536 // 128 // 2, 232448 // 3),  # two at least, where head sizes are large
    "_extend": (255, 232448 // 2),
}
USUAL = (128, 16384)  # two programs of 256 threads
SMALL = {"_plan", "_take_in", "_softcap", "_norm", "_place", "_gated"}
ALL = 150  # configurations, at least


@pytest.fixture(scope="module", params=[7, pytest.param(1, marks=pytest.mark.slow)], ids="every {}".format)
def compiled(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "scripts.compile_kernels", f"--every={request.param}"]
    made = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    lines = [json.loads(line) for line in made.stdout.splitlines()]
    assert len(lines) >= ALL // request.param
    return lines


def test_the_kernels_are_there(compiled: list[dict[str, Any]]):
    found = {each["kernel"] for each in compiled}
    assert found >= {"_adjust", "_draw", "_decode", "_extend", "_norm"}
    if len(compiled) >= ALL:
        assert found == {"_adjust", "_draw", "_cut", "_decode", "_extend", *SMALL}


def test_nothing_spills_and_enough_programs_fit(compiled: list[dict[str, Any]]):
    for each in compiled:
        registers, shared = MOST.get(each["kernel"], USUAL)
        assert each["stack"] == each["local"] == 0, each
        assert 16 <= each["registers"] <= registers and each["shared"] <= shared, each


def test_attention_copies_sixteen_bytes_at_once_and_multiplies_on_the_tensor_cores(compiled: list[dict[str, Any]]):
    attention = [each for each in compiled if each["kernel"] in ("_decode", "_extend")]
    assert len(attention) >= 5
    for each in attention:
        assert each["copies"] >= 8 and each["products"] >= 4, each
