"""The configurations of the Triton kernels compile for GPUs that are not here, within what one has to give.

All of them for each kind of card in `make test-slow`, by the Triton that is installed and by the oldest that is
allowed. In `make test` every ninth for Hopper, and of the others one in fifty: each kernel with each type that models
have and each of its flags on and off.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

USUAL = (128, 16384)  # registers of a thread and bytes of shared memory, but of attention
LATENTS = ("_decode_latents", "_extend_latents")
ATTENTION = ("_decode", "_extend", "_shared", *LATENTS)
EXPERTS = ("_sort", "_grouped", "_combine")
# programs that a multiprocessor holds, with head sizes up to 128
LEAST = dict.fromkeys((*ATTENTION, "_linear", "_grouped"), 2)
LEAST |= dict.fromkeys(LATENTS, 1)  # whose heads have 512 numbers
LEAST |= {"_advance": 6}  # whose programs have one or two warps
SMALL = {
    "_widen", "_plan", "_lead", "_group", "_take_in", "_softcap", "_norm", "_place", "_gated", "_sort", "_combine",
    "_bring", "_normed",
}  # fmt: skip
ALL = 150  # configurations of a card, at least
OTHERS = (80, 89, 100)
OLDEST = "triton==3.6.0"
FEW = [pytest.param((50, capability, ""), marks=pytest.mark.slow) for capability in OTHERS]
WHOLE = [
    pytest.param((1, capability, triton), marks=[pytest.mark.slow, pytest.mark.timeout(900)])
    for triton in ("", OLDEST)
    for capability in (*OTHERS, 90)
]


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but that Triton."""
    folder = tmp_path_factory.mktemp("triton")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder), OLDEST], check=True)
    return folder


@pytest.fixture(scope="module", params=[(9, 90, ""), *FEW, *WHOLE], ids=str)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    every, capability, triton = request.param
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if triton:
        environment["PYTHONPATH"] = str(request.getfixturevalue("oldest"))
        environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
        version = [sys.executable, "-c", "import triton; print(triton.__version__)"]
        found = subprocess.run(version, capture_output=True, text=True, env=environment, check=True).stdout.strip()
        assert triton.endswith(f"=={found}")
    command = [sys.executable, "-m", "scripts.compile_kernels", f"--every={every}", f"--capability={capability}"]
    made = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    lines = [json.loads(line) for line in made.stdout.splitlines()]
    assert len(lines) >= ALL // every and all(line["capability"] == capability for line in lines)
    return lines


def test_the_kernels_are_there(compiled: list[dict[str, Any]]):
    found = {each["kernel"] for each in compiled}
    if len(compiled) >= ALL // 9:
        assert found >= {"_adjust", "_draw", "_decode", "_extend", "_norm"}
    if len(compiled) >= ALL:
        of_float8 = {"_round_rows"} if compiled[0]["capability"] >= 89 else set()
        assert found == {"_adjust", "_draw", "_cut", *LEAST, *SMALL, *of_float8}


def test_nothing_spills_and_enough_programs_fit(compiled: list[dict[str, Any]]):
    for each in compiled:
        of_float8 = 8 if (each["cache"], each["capability"]) == ("fp8e4nv", 100) else 0  # whatever its registers
        assert each["local"] == 0 and each["stack"] <= of_float8, each
        if each["kernel"] not in LEAST:
            assert 16 <= each["registers"] <= USUAL[0] and each["shared"] <= USUAL[1], each
        least = LEAST.get(each["kernel"], 2) if each.get("D", 0) <= 128 else 1
        assert each["programs"] >= least, each


def test_attention_copies_sixteen_bytes_at_once_and_multiplies_on_the_tensor_cores(compiled: list[dict[str, Any]]):
    attention = [each for each in compiled if each["kernel"] in ATTENTION]
    assert len(attention) >= len([each for each in compiled if each["kernel"] not in EXPERTS]) // 6
    for each in attention:
        assert each["copies"] >= (2 if each["cache"] == "fp8e4nv" else 8), each
        assert each["products"] >= 4 or each["type"] == "fp32", each  # whose products are exact


def test_experts_copy_sixteen_bytes_at_once_and_multiply_on_the_tensor_cores(compiled: list[dict[str, Any]]):
    experts = [each for each in compiled if each["kernel"] == "_grouped"]
    assert experts or len(compiled) < ALL // 9
    for each in experts:
        assert each["copies"] >= 8 and each["products"] >= 4, each
