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
    found = build.find_compilers()
    if not found:
        pytest.skip("no C++ compiler here")
    return found[0]


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


def tool(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_names_with_a_version_are_found_the_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("g++-9", "clang++-17", "g++-11", "g++-old", "x86_64-g++-12"):
        tool(tmp_path, name, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [path.name for path in build.find_compilers()] == ["clang++-17", "g++-11", "g++-9"]
    (tmp_path / "g++").symlink_to(tmp_path / "g++-11")
    assert [path.name for path in build.find_compilers()] == ["g++", "clang++-17", "g++-9"]


def test_every_compiler_is_tried_and_what_each_said_is_kept(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tools = compiler(), tmp_path / "tools"
    tools.mkdir()
    tool(tools, "c++", "echo error: too old; exit 1")
    tool(tools, "g++-99", "echo error: too new; exit 1")
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(build.NoCompiler, match=r"(?s)c\+\+ .*too old.*g\+\+-99 .*too new"):
        build.load_library()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    tool(tools, "g++-98", f'exec {real} "$@"')
    monkeypatch.setattr(build, "COMPILERS", ("c++",))
    build.load_library()
    assert len(list(cache.iterdir())) == 1


def test_the_cache_folder_is_the_users_alone(cache: Path) -> None:
    assert build.cache_folder().stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used(cache: Path, mode: int) -> None:
    own = build.cache_folder()
    own.chmod(mode)
    build._own_folder.cache_clear()
    other = build.cache_folder()
    assert other != own and other == build.cache_folder() and build.is_private(other)


def test_a_library_that_others_may_write_to_is_compiled_again(cache: Path) -> None:
    compiler()
    path = build.cache_folder() / f"kernels-{build.cache_key(compiler(), build.openmp_runtime())}.so"
    path.write_text("not the kernels")
    path.chmod(0o777)
    build.load_library()
    assert build.is_private(path) and path.read_bytes()[:4] == b"\x7fELF"


def test_a_link_is_not_followed(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = build.cache_folder()
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere")
    build._own_folder.cache_clear()
    assert build.cache_folder() not in (folder, tmp_path / "elsewhere")


def test_without_a_home_the_kernels_are_still_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    build._own_folder.cache_clear()
    assert build.is_private(build.cache_folder())


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_one_openmp_runtime_in_the_process() -> None:
    compiler()
    build.load_library()
    maps = Path("/proc/self/maps").read_text()
    assert len({line.split()[-1] for line in maps.splitlines() if "libgomp" in line or "libiomp" in line}) <= 1
