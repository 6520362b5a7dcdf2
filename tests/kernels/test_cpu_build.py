"""The compiled library's cache: reused, keyed by content, written whole or not at all."""

import shutil
from pathlib import Path

import pytest

from ramet.kernels.cpu import build


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ramet" / "kernels"


def compiler() -> Path:
    found = build.find_compiler()
    if found is None:
        pytest.skip("no C++ compiler here")
    return found


@pytest.mark.slow
def test_an_empty_cache_is_filled_with_one_library(cache: Path) -> None:
    compiler()
    build.load_library()
    assert [path.suffix for path in cache.iterdir()] == [".so"]


def test_second_load_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler()
    build.load_library()
    kept = build.cache_folder() / f"kernels-{build.cache_key(compiler(), build.openmp_runtime())}.so"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shutil.copy2(kept, build.cache_folder())
    (library,) = build.cache_folder().iterdir()
    written = library.stat().st_mtime_ns
    build.load_library()
    assert [path.stat().st_mtime_ns for path in build.cache_folder().iterdir()] == [written]


def test_another_source_is_another_key(tmp_path: Path) -> None:
    before = build.cache_key(compiler(), None)
    for path in [*build.FOLDER.glob("*.cpp"), *build.FOLDER.glob("*.h")]:
        shutil.copy(path, tmp_path)
    assert build.cache_key(compiler(), None, tmp_path) == before
    with (tmp_path / "vector.h").open("a") as source:
        source.write("// changed\n")
    assert build.cache_key(compiler(), None, tmp_path) != before


def test_another_openmp_runtime_is_another_key() -> None:
    assert build.cache_key(compiler(), Path("/a")) != build.cache_key(compiler(), Path("/b"))


def test_broken_source_leaves_nothing_and_shows_the_compilers_words(tmp_path: Path) -> None:
    sources, target = tmp_path / "sources", tmp_path / "target"
    sources.mkdir(), target.mkdir()
    for name in build.SOURCES:
        (sources / name).write_text("this is no C++;")
    with pytest.raises(build.NoCompiler, match="error"):
        build.compile_library(target / "library.so", compiler(), None, sources)
    assert not list(target.iterdir())


def test_no_compiler_says_which_were_tried(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_CXX", "/nowhere/g++")
    with pytest.raises(build.NoCompiler, match="/nowhere/g"):
        build.load_library()


def test_the_cache_folder_is_the_users_alone(cache: Path) -> None:
    assert build.cache_folder().stat().st_mode & 0o077 == 0


def test_one_openmp_runtime_in_the_process() -> None:
    compiler()
    build.load_library()
    maps = Path("/proc/self/maps").read_text()
    assert len({line.split()[-1] for line in maps.splitlines() if "libgomp" in line or "libiomp" in line}) <= 1
