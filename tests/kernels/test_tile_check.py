"""Tile registers are tried in a process of their own before they are used. Here they are emulated."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from ramet.kernels.cpu import build
from ramet.kernels.cpu.limits import measure
from ramet.kernels.cpu.tile_check import tiles_work

# It has tile registers, and the first who uses it ends.
ENDS = """
#include <cstdlib>
extern "C" int ramet_has_arithmetic(int which) { return 1; }
extern "C" void ramet_packed_size() { abort(); }
"""


@pytest.fixture(scope="module")
def compiler() -> Path:
    compilers = build.find_compilers()
    if not compilers:
        pytest.skip("no C++ compiler here")
    return compilers[0]


@pytest.fixture(scope="module")
def emulating(tmp_path_factory: pytest.TempPathFactory, compiler: Path) -> ctypes.CDLL:
    """The library with tile registers that are emulated."""
    flags = [flag for flag in build.FLAGS if "native" not in flag]
    target = tmp_path_factory.mktemp("tiles") / "library.so"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "FLAGS", (*flags, "-DRAMET_EMULATE_TILES"))
        patch.setattr(build, "SOURCES", ("pool.cpp", "linear.cpp", "attention.cpp", "limits.cpp"))
        build.compile_library(target, compiler)
    return ctypes.CDLL(str(target))


def test_tiles_that_compute_the_same_work(emulating: ctypes.CDLL) -> None:
    assert emulating.ramet_has_arithmetic(2) == 1 and tiles_work(emulating)


def test_a_library_that_ends_its_process_does_not_end_ours(tmp_path: Path, compiler: Path) -> None:
    source, target = tmp_path / "ends.cpp", tmp_path / "ends.so"
    source.write_text(ENDS)
    subprocess.run([str(compiler), "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    assert not tiles_work(ctypes.CDLL(str(target)))


def test_tiles_that_do_not_work_are_not_measured(emulating: ctypes.CDLL) -> None:
    few = 1 << 20
    assert measure(emulating, 1, tiles=True, read_bytes=few).tile_flops > 0
    assert measure(emulating, 1, tiles=False, read_bytes=few).tile_flops == 0
