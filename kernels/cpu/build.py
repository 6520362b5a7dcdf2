"""Compiles the C++ kernels once per machine and loads them. Decides flags, the cache's key and its place.

The key is the content of the sources, the flags, the compiler and the CPU's own feature flags, so a cache that is
shared between machines or outlives an upgrade never serves a wrong library. Files compile side by side. The library
joins the OpenMP runtime that torch has loaded: with two, each would keep its threads spinning against the other's.
"""

import ctypes
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = ("attention.cpp", "small_ops.cpp", "penalties.cpp", "draw.cpp", "scores.cpp")
FLAGS = (
    "-std=c++17",
    "-O2",
    "-march=native",
    "-fPIC",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
WARNINGS = ("-Wno-psabi",)  # vector types wider than the ABI's registers never cross the library's border
COMPILERS = ("g++", "c++", "clang++")
TIMEOUT_S = 120


class NoCompiler(Exception):
    """No library can be made here: no compiler, or it failed; the message says which."""


def load_library() -> ctypes.CDLL:
    """The kernels, compiled when the cache has none for this machine. Raises NoCompiler."""
    runtime = openmp_runtime()
    compiler = find_compiler()
    if compiler is None:
        raise NoCompiler(f"none of {', '.join(compiler_names())} is on the path")
    path = cache_folder() / f"kernels-{cache_key(compiler, runtime)}.so"
    if not path.is_file():
        logging.getLogger("ramet").info("compiling the CPU kernels, once for this machine and version")
        compile_library(path, compiler, runtime)
    return ctypes.CDLL(str(path))


def compiler_names() -> tuple[str, ...]:
    """What RAMET_CXX says, or the usual names."""
    return (os.environ["RAMET_CXX"],) if "RAMET_CXX" in os.environ else COMPILERS


def find_compiler() -> Path | None:
    """The first of them that is on the path."""
    found = (shutil.which(name) for name in compiler_names())
    return next((Path(path).resolve() for path in found if path), None)


def cache_folder() -> Path:
    """Of this user alone: what lies here is executed."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "ramet" / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def cache_key(compiler: Path, runtime: Path | None, sources: Path = FOLDER) -> str:
    stat = compiler.stat()
    parts = [str(compiler), str(stat.st_size), str(stat.st_mtime_ns), " ".join(FLAGS), str(runtime), cpu_features()]
    parts += [path.read_text() for path in sorted([*sources.glob("*.cpp"), *sources.glob("*.h")])]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def cpu_features() -> str:
    """What -march=native depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    wanted = re.findall(r"^(?:flags|Features|model|cpu family|CPU part)\s*:.*$", text, re.MULTILINE)
    return "\n".join(dict.fromkeys(wanted))


def openmp_runtime() -> Path | None:
    """The OpenMP library that this process has loaded already (torch brings one), if any."""
    import torch  # noqa: F401  (loading it is the point)

    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    found = re.findall(r"(/\S*/lib(?:gomp|iomp5|omp)[^/\s]*\.so[^/\s]*)", maps)
    return Path(found[0]) if found else None


def compile_library(path: Path, compiler: Path, runtime: Path | None, sources: Path = FOLDER) -> None:
    """Write the library to `path`, whole or not at all: two processes may do this at the same moment."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        objects = [Path(folder) / f"{Path(name).stem}.o" for name in SOURCES]
        compiles = [
            [str(compiler), *FLAGS, *WARNINGS, "-c", str(sources / name), "-o", str(target)]
            for name, target in zip(SOURCES, objects)
        ]
        _run_together(compiles)
        whole = Path(folder) / path.name
        openmp = ["-fopenmp"] if runtime is None else [str(runtime)]
        _run_together([[str(compiler), "-shared", *map(str, objects), *openmp, "-o", str(whole)]])
        whole.chmod(0o700)
        os.replace(whole, path)


def _run_together(commands: list[list[str]]) -> None:
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in running]
    except subprocess.TimeoutExpired as error:
        for process in running:
            process.kill()
            process.communicate()
        raise NoCompiler(f"{' '.join(commands[0])} takes longer than {TIMEOUT_S} s") from error
    for process, command, output in zip(running, commands, outputs):
        if process.returncode:
            raise NoCompiler(f"{' '.join(command)} failed with {process.returncode}:\n{output[-2000:]}")
