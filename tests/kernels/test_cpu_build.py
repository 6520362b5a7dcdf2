"""The compiled library's cache: reused, keyed by content, written whole or not at all."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate
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
    kept = build.cache_folder() / f"kernels-{build.cache_key(compiler())}.so"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shutil.copy2(kept, build.cache_folder())
    (library,) = build.cache_folder().iterdir()
    written = library.stat().st_mtime_ns
    build.load_library()
    assert [path.stat().st_mtime_ns for path in build.cache_folder().iterdir()] == [written]


def test_another_source_is_another_key(tmp_path: Path) -> None:
    before = build.cache_key(compiler())
    for path in [*build.FOLDER.glob("*.cpp"), *build.FOLDER.glob("*.h")]:
        shutil.copy(path, tmp_path)
    assert build.cache_key(compiler(), tmp_path) == before
    with (tmp_path / "vector.h").open("a") as source:
        source.write("// changed\n")
    assert build.cache_key(compiler(), tmp_path) != before


def test_broken_source_leaves_nothing_and_shows_the_compilers_words(tmp_path: Path) -> None:
    sources, target = tmp_path / "sources", tmp_path / "target"
    sources.mkdir(), target.mkdir()
    for name in build.SOURCES:
        (sources / name).write_text("this is no C++;")
    with pytest.raises(build.NoCompiler, match="error"):
        build.compile_library(target / "library.so", compiler(), sources)
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


def test_every_compiler_is_tried_and_what_each_said_is_kept_and_logged(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
    monkeypatch.setattr(build, "SOURCES", ("identity.cpp",))
    build.load_library()
    assert len(list(cache.iterdir())) == 1
    lines = [record.getMessage() for record in caplog.records]
    said = [line for line in lines if "does not compile" in line]
    assert len(said) == 4 and all("too old" in line or "too new" in line for line in said)


def test_compiling_is_announced_once_where_nothing_is_set_up_to_log(cache: Path) -> None:
    compiler()
    loading = "from ramet.kernels.cpu import build; build.SOURCES = ('identity.cpp',); build.load_library()"
    runs = [
        subprocess.run([sys.executable, "-c", loading], capture_output=True, text=True, check=True) for _ in range(2)
    ]
    line = f"compiling the CPU kernels with {compiler()}, once for this machine and version: 10 to 60 s\n"
    assert [done.stderr for done in runs] == [line, ""]


def test_the_cache_folder_is_the_users_alone(cache: Path) -> None:
    assert build.cache_folder().stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used(cache: Path, mode: int) -> None:
    own = build.cache_folder()
    own.chmod(mode)
    with build.kernels_folder() as other:
        assert other != own and build.is_private(other)


def test_a_library_of_this_process_alone_leaves_no_file(
    cache: Path, short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMET_CXX", str(tool(tmp_path, "copying", f"{LAST_ARGUMENT}; cp {kept_library()} $last")))
    build.cache_folder().chmod(0o777)
    assert build.load_library().ramet_attention
    assert list(short_tmp.iterdir()) == []


LAST_ARGUMENT = "for last; do :; done"


def kept_library() -> Path:
    """A library in the cache of this machine."""
    compiler()
    with pytest.MonkeyPatch.context() as own:
        own.delenv("XDG_CACHE_HOME", raising=False)
        build.load_library()
        return build.cache_folder() / f"kernels-{build.cache_key(compiler())}.so"


@pytest.mark.parametrize("private", [False, True])
def test_compilers_and_their_folder_go_with_the_process_that_started_them(
    cache: Path, short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    started, alive = tmp_path / "started", tmp_path / "alive"
    os.mkfifo(started), os.mkfifo(alive)
    script = f"exec 9> {alive}; trap '' TERM; echo > {started}; sleep 600 & wait"  # a compiler starts others
    monkeypatch.setenv("RAMET_CXX", str(tool(tmp_path, "hanging", script)))
    if private:
        build.cache_folder().chmod(0o777)
    loading = "from ramet.kernels.cpu import build; build.load_library()"
    with (
        os.fdopen(os.open(started, os.O_RDWR)) as begun,  # to write as well: its end never comes
        os.fdopen(os.open(alive, os.O_RDONLY | os.O_NONBLOCK)) as ended,
        subprocess.Popen([sys.executable, "-c", loading], stderr=subprocess.PIPE) as child,
    ):
        for _ in build.SOURCES[: build.usable_cores()]:
            begun.readline()
        folder = short_tmp if private else cache
        (work,) = (path for path in folder.iterdir() if path.is_dir())
        child.kill()
        os.set_blocking(ended.fileno(), True)
        assert ended.read() == ""  # no compiler is left, nor what it started
        assert child.stderr is not None and child.stderr.read() is not None  # nor what removes the folder
        assert not work.exists()


def test_a_compiler_that_takes_too_long_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "TIMEOUT_S", 0.1)
    hanging = tool(tmp_path, "hanging", "sleep 600 & wait")
    (tmp_path / "target").mkdir()
    with pytest.raises(build.NoCompiler, match="takes longer than"):
        build.compile_library(tmp_path / "target" / "library.so", hanging)
    assert not list((tmp_path / "target").iterdir())


@pytest.mark.parametrize("private", [False, True])
def test_a_folder_that_is_left_of_a_compilation_is_removed_by_the_next(
    cache: Path, short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    monkeypatch.setenv("RAMET_CXX", str(tool(tmp_path, "copying", f"{LAST_ARGUMENT}; cp {kept_library()} $last")))
    folder, prefix = (short_tmp, "ramet-kernels-") if private else (build.cache_folder(), "compile-")
    if private:
        build.cache_folder().chmod(0o777)
    (left := folder / f"{prefix}left").mkdir()
    (left / "linear.o").touch()
    build.load_library()
    assert not left.exists() and all(path.is_file() for path in folder.iterdir())


def test_a_library_that_others_may_write_to_is_compiled_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SOURCES", ("identity.cpp",))
    path = build.cache_folder() / f"kernels-{build.cache_key(compiler())}.so"
    path.write_text("not the kernels")
    path.chmod(0o777)
    build.load_library()
    assert build.is_private(path) and path.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[: len(data) // 2],
        lambda data: data[:4096] + bytes([data[4096] ^ 1]) + data[4097:],
    ],
    ids=["empty", "header", "half", "byte"],
)
def test_a_library_that_is_damaged_is_compiled_again_and_the_log_says_so(
    cache: Path, damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(build, "SOURCES", ("identity.cpp",))
    build.load_library()
    (path,) = build.cache_folder().iterdir()
    whole = path.read_bytes()
    path.unlink()  # what is loaded of it stays
    path.write_bytes(damage(whole))
    path.chmod(0o700)
    build.load_library()
    assert path.read_bytes() == whole and f"{path} is damaged" in caplog.text


def test_without_a_compiler_the_library_of_another_is_used_if_it_fits(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = build.cache_folder() / f"kernels-{build.fit_key()}-made-by-another.so"
    shutil.copy2(kept_library(), other)
    (tmp_path / "tools").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    assert build.load_library()._name == str(other)
    for change in (
        lambda own: own.setattr(build, "FLAGS", (*build.FLAGS, "-O3")),
        lambda own: own.setattr(build, "cpu_features", lambda: "flags : others"),
        lambda own: own.setattr(build, "sources_hash", lambda sources=build.FOLDER: "other sources"),
        lambda own: own.setenv("RAMET_CXX", "g++"),
    ):
        with pytest.MonkeyPatch.context() as own, pytest.raises(build.NoCompiler):
            change(own)
            build.load_library()


def test_where_the_cache_cannot_be_written_to_kernels_are_compiled_elsewhere(
    cache: Path, short_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAMET_CXX", str(tool(tmp_path, "copying", f"{LAST_ARGUMENT}; cp {kept_library()} $last")))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (build.ROOM_BYTES // 2, before[1]))  # the library is smaller
    try:
        assert build.load_library().ramet_attention
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(cache.iterdir()) == list(short_tmp.iterdir()) == []
    assert f"cannot be kept: {cache} cannot be written to: File too large" in caplog.text
    assert "does not compile" not in caplog.text


def test_old_libraries_are_removed_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SOURCES", ("identity.cpp",))
    folder = build.cache_folder()
    for age in range(build.MAX_KEPT + 3):
        (old := folder / f"kernels-{age:020}.so").touch()
        os.utime(old, (1000 - age, 1000 - age))
    build.load_library()
    names = {path.name for path in folder.glob("kernels-*.so")}
    assert len(names) == build.MAX_KEPT and f"kernels-{0:020}.so" in names
    assert not any(f"kernels-{age:020}.so" in names for age in range(build.MAX_KEPT - 1, build.MAX_KEPT + 3))


def test_a_link_is_not_followed(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = build.cache_folder()
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with build.kernels_folder() as other:
        assert other not in (folder, tmp_path / "elsewhere")


def test_without_a_home_the_kernels_are_still_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with build.kernels_folder() as folder:
        assert build.is_private(folder)


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_as_many_files_compile_at_once_as_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tool, log = tmp_path / "c++", tmp_path / "log"
    tool.write_text(f'#!/bin/sh\necho + >> {log}\nfor target; do :; done\necho > "$target"\necho - >> {log}\n')
    tool.chmod(0o700)
    monkeypatch.setattr(build, "usable_cores", lambda: 2)
    monkeypatch.setattr(build, "PROGRESS_S", -1.0)
    (tmp_path / "made").mkdir()
    build.compile_library(tmp_path / "made" / "library.so", tool)
    running = list(accumulate(1 if mark == "+" else -1 for mark in log.read_text().split()))
    assert len(running) == 2 * (len(build.SOURCES) + 1) and max(running) <= 2
    assert f"compiling the CPU kernels: 3/{len(build.SOURCES)}" in caplog.messages
