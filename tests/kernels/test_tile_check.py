"""Tile registers are tried in a process of their own before they are used. Here they are emulated."""

import ctypes
from pathlib import Path

import pytest

from ramet.kernels.cpu import build
from ramet.kernels.cpu.tile_check import tiles_work


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> Path:
    compilers = build.find_compilers()
    if not compilers:
        pytest.skip("no C++ compiler here")
    monkeypatch.setattr(build, "FLAGS", (*(flag for flag in build.FLAGS if "native" not in flag), *flags))
    monkeypatch.setattr(build, "SOURCES", ("pool.cpp", "linear.cpp", "limits.cpp"))
    target = folder / "library.so"
    build.compile_library(target, compilers[0])
    return target


def test_tiles_that_compute_the_same_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path, monkeypatch, "-DRAMET_EMULATE_TILES")
    assert ctypes.CDLL(str(path)).ramet_has_arithmetic(2) == 1 and tiles_work(str(path))


def test_a_library_that_ends_its_process_does_not_end_ours(tmp_path: Path) -> None:
    assert not tiles_work(str(tmp_path / "none.so"))
