"""Loads the C++ kernels: built ones, where a wheel has brought some that fit this CPU, else compiled once per machine.

Decides which library is taken, flags, the cache's key and its place. Built ones have a hash of their sources inside.
The key is the content of the sources, the flags, the CPU's own feature flags and the compiler, so a cache that is
shared between machines or outlives an upgrade never serves a wrong library. Where there is no compiler, a library of
any compiler with the rest of the key is taken. A library ends with its own hash, for a damaged one would end the
process that loads it. As many files compile side by side as there are cores.
"""

import ctypes
import hashlib
import logging
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path

from ramet.ipc.folders import OwnedFolder
from ramet.kernels.cpu.classes import CpuClass, classes_of, features_here, fitting
from ramet.kernels.cpu.group import ProcessGroup

FOLDER = Path(__file__).parent
BUILT = FOLDER / "built"  # libraries by the names of their classes; a checkout has none
# -march=native is not known to every clang for ARM; on x86-64 it is the one that both know
NATIVE = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
SOURCES = (
    "pool.cpp", "replay.cpp", "linear.cpp", "linear_int8.cpp", "linear_int8wo.cpp", "linear_int4.cpp",
    "plan.cpp", "attention.cpp", "latent.cpp", "small_ops.cpp", "experts.cpp", "adapters.cpp", "delta.cpp",
    "penalties.cpp", "masks.cpp", "draw.cpp", "scores.cpp", "limits.cpp", "identity.cpp",
)  # fmt: skip
PORTABLE = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-pthread",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
FLAGS = (*PORTABLE, NATIVE)
WARNINGS = ("-Wno-psabi",)  # vector types wider than the ABI's registers never cross the library's border
COMPILERS = ("g++", "c++", "clang++")
VERSIONED = re.compile(r"(?:g|clang)\+\+-[0-9]+")
TIMEOUT_S = 120  # for each file
PROGRESS_S = 5.0  # between two lines of the log while files compile
MAX_KEPT = 16  # libraries in the cache
ROOM_BYTES = 1 << 23  # that a compilation needs: g++ 12 writes 2.5 MB
HASH_BYTES = 32  # at the end of a library
COMPILE = "compile"  # as RAMET_KERNELS: also where built ones fit


class NoCompiler(Exception):
    """No library can be made here: no compiler, or it failed; the message says which."""


class WrongKernels(Exception):
    """RAMET_KERNELS asks for what cannot run here; the message says why."""


class NoCache(Exception):
    """There is no folder to keep libraries in; the message says why."""


def load_library() -> ctypes.CDLL:
    """The kernels: built ones that fit, else compiled unless the cache has them. Raises NoCompiler, WrongKernels."""
    built = built_library()
    if built is not None:
        return ctypes.CDLL(str(built))
    with suppress(NoCache):
        for path in compiled_libraries(cache_folder()):
            with suppress(OSError):  # it was made on a newer system
                return ctypes.CDLL(str(path))
    if not find_compilers():
        raise NoCompiler(f"none of {', '.join(compiler_names())} is on the path")
    with kernels_folder() as folder:
        return _compile_in(folder)


def built_library(folder: Path = BUILT, features: frozenset[str] | None = None) -> Path | None:
    """Of the best class that fits this CPU, or of the one that is asked for. None: compile. Raises WrongKernels."""
    if not folder.is_dir() or compiles_anyway():
        return None
    features = features_here() if features is None else features
    asked = class_asked_for(features)
    for each in fitting(features) if asked is None else [asked]:
        path = folder / f"{each.name}.so"
        if path.is_file() and identity().encode() in path.read_bytes():
            return path
    return None


def compiles_anyway() -> bool:
    """Also where built ones fit. A compiler that is named is meant to be used."""
    return os.environ.get("RAMET_KERNELS", COMPILE if "RAMET_CXX" in os.environ else "") == COMPILE


def class_asked_for(features: frozenset[str]) -> CpuClass | None:
    """By RAMET_KERNELS. Raises WrongKernels."""
    name = os.environ.get("RAMET_KERNELS", "")
    known = {each.name: each for each in classes_of(platform.machine())}
    if name in ("", COMPILE):
        return None
    if name not in known:
        raise WrongKernels(f"RAMET_KERNELS is {name!r}, must be {', '.join([COMPILE, *known])}, or unset")
    if lacking := known[name].features - features:
        raise WrongKernels(f"RAMET_KERNELS is {name!r}, but this CPU lacks {', '.join(sorted(lacking))}")
    return known[name]


def chosen_flags() -> tuple[str, ...]:
    """Of a compilation: this CPU's own, or those of the class that is asked for. Raises WrongKernels."""
    asked = class_asked_for(features_here())
    return FLAGS if asked is None else (*PORTABLE, *asked.flags)


def identity(sources: Path = FOLDER) -> str:
    """What the library of these sources has inside (identity.cpp)."""
    return f"ramet kernels of sources {sources_hash(sources)}"


def sources_hash(sources: Path = FOLDER) -> str:
    texts = (path.read_bytes() for path in sorted([*sources.glob("*.cpp"), *sources.glob("*.h")]))
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:20]


def compiled_libraries(folder: Path) -> list[Path]:
    """Those that the cache has for this CPU, that of the first compiler first; one may be of a newer system."""
    found = [path for path in _places(folder).values() if path.is_file()]
    if not find_compilers() and "RAMET_CXX" not in os.environ:
        found = sorted(folder.glob(f"kernels-{fit_key(flags=chosen_flags())}-*.so"))
    return [path for path in found if is_private(path) and is_as_written(path)]


def _places(folder: Path) -> dict[Path, Path]:
    """Of each compiler, where its library is kept. Raises WrongKernels."""
    flags = chosen_flags()
    return {compiler: folder / f"kernels-{cache_key(compiler, flags=flags)}.so" for compiler in find_compilers()}


def _compile_in(folder: Path) -> ctypes.CDLL:
    """By the first compiler that can. Raises NoCompiler."""
    failures = []
    for compiler, path in _places(folder).items():
        # a warning: an LLM or `ramet run` shows nothing below, and would seem to hang
        logging.getLogger("ramet").warning(
            "compiling the CPU kernels with %s, once for this machine and version: 10 to 60 s", compiler
        )
        try:
            compile_library(path, compiler, flags=chosen_flags())
            _keep_newest(folder)
            return ctypes.CDLL(str(path))
        except (NoCompiler, OSError) as error:  # OSError: what was made cannot be loaded
            failures.append(str(error))
            said = failures[-1].strip().splitlines()[-1]
            logging.getLogger("ramet").warning("%s does not compile the kernels: %s", compiler, said)
    raise NoCompiler("\n".join(failures))


def _keep_newest(folder: Path) -> None:
    with suppress(OSError):  # another process does the same
        for old in sorted(folder.glob("kernels-*.so"), key=lambda each: -each.stat().st_mtime_ns)[MAX_KEPT:]:
            old.unlink()


def compiler_names() -> tuple[str, ...]:
    """What RAMET_CXX says, or the usual names, and behind them those with a version that are on the path."""
    if "RAMET_CXX" in os.environ:
        return (os.environ["RAMET_CXX"],)
    found = {path.name for folder in os.get_exec_path() for path in Path(folder).glob("*++-*")}
    versioned = sorted(filter(VERSIONED.fullmatch, found), key=lambda name: -int(name.rpartition("-")[2]))
    return (*COMPILERS, *versioned)


def find_compilers() -> list[Path]:
    """Each of them that is on the path, once."""
    found: dict[Path, Path] = {}  # what a name leads to -> the name; g++ looks at the name it is called by
    for path in filter(None, map(shutil.which, compiler_names())):
        found.setdefault(Path(path).resolve(), Path(path))
    return list(found.values())


@contextmanager
def kernels_folder() -> Iterator[Path]:
    """To compile in: the cache, or a folder that is removed at the end, for a library that was loaded needs no file."""
    try:
        folder = cache_folder()
        check_room(folder)
    except NoCache as why:
        logging.getLogger("ramet").warning(
            "the CPU kernels are compiled for this process alone, for they cannot be kept: %s", why
        )
        with OwnedFolder.make(Path(tempfile.gettempdir()), "ramet-kernels-") as own, ProcessGroup(own.path):
            yield own.path
    else:
        yield folder


def cache_folder(name: str = "kernels", folder: Path | None = None) -> Path:
    """Of this user, and writable by nobody else, for what lies here is executed. Raises NoCache."""
    folder = folder or Path(os.environ.get("XDG_CACHE_HOME") or _home_cache()) / "ramet" / name
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise NoCache(f"{folder} cannot be made: {error.strerror}") from None
    if not is_private(folder):
        raise NoCache(f"{folder} belongs to another user or others may write to it")
    return folder


def check_room(folder: Path) -> None:
    """Raises NoCache where a compilation could not write to it."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM_BYTES))
    except OSError as error:
        raise NoCache(f"{folder} cannot be written to: {error.strerror}") from None


def is_private(path: Path) -> bool:
    """It belongs to this user, others cannot write to it, and it is no link."""
    found = path.lstat()
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022 and not stat.S_ISLNK(found.st_mode)


def is_as_written(library: Path) -> bool:
    """By the hash at its end. The log says which is not."""
    data = memoryview(library.read_bytes())
    is_same = hashlib.sha256(data[:-HASH_BYTES]).digest() == data[-HASH_BYTES:]
    if not is_same:
        logging.getLogger("ramet").warning("%s is damaged and not used", library)
    return is_same


def _home_cache() -> Path:
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        raise NoCache("there is no HOME") from None


def cache_key(compiler: Path, sources: Path = FOLDER, flags: Sequence[str] | None = None) -> str:
    binary = compiler.resolve().stat()
    made_by = _hash(str(compiler.resolve()), str(binary.st_size), str(binary.st_mtime_ns))
    return f"{fit_key(sources, flags)}-{made_by}"


def fit_key(sources: Path = FOLDER, flags: Sequence[str] | None = None) -> str:
    """All that a library must have in common with what a compiler would make here."""
    return _hash(" ".join(flags or FLAGS), cpu_features(), sources_hash(sources))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def cpu_features() -> str:
    """What NATIVE depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    wanted = re.findall(r"^(?:flags|Features|model|cpu family|CPU part)\s*:.*$", text, re.MULTILINE)
    return "\n".join(dict.fromkeys(wanted))


def compile_library(
    path: Path,
    compiler: Path,
    sources: Path = FOLDER,
    *,
    flags: Sequence[str] | None = None,
    link: Sequence[str] = (),
    timeout_s: float | None = None,
) -> None:
    """Write the library to `path`, whole or not at all: two processes may do this at the same moment.

    `timeout_s`: of compiling each file, and of linking; None: TIMEOUT_S, what a start has for it.
    """
    within_s = TIMEOUT_S if timeout_s is None else timeout_s
    with OwnedFolder.make(path.parent, "compile-") as work, ProcessGroup(work.path) as group:
        objects = [work.path / f"{Path(name).stem}.o" for name in SOURCES]
        named = f'-DRAMET_SOURCES="{sources_hash(sources)}"'
        compiles = [
            [str(compiler), *(flags or FLAGS), *WARNINGS, named, "-c", str(sources / name), "-o", str(target)]
            for name, target in zip(SOURCES, objects)
        ]
        _run_all(group, compiles, within_s)
        whole = work.path / path.name
        command = [str(compiler), "-shared", "-pthread", *link, *map(str, objects), "-o", str(whole)]
        _run_all(group, [command], within_s)
        whole.chmod(0o700)
        digest = hashlib.sha256(whole.read_bytes()).digest()
        with whole.open("ab", buffering=0) as written:
            written.write(digest)
            os.fsync(written.fileno())
        os.replace(whole, path)


def _run_all(group: ProcessGroup, commands: list[list[str]], timeout_s: float) -> None:
    """As many at once as there are cores: each takes hundreds of MB. `timeout_s`: for each. Raises NoCompiler."""
    said_s = time.monotonic()
    with ThreadPoolExecutor(usable_cores()) as threads:
        running = [threads.submit(_run, group, command, timeout_s) for command in commands]
        try:
            for num, done in enumerate(as_completed(running), 1):
                done.result()
                if num < len(commands) and time.monotonic() - said_s > PROGRESS_S:
                    logging.getLogger("ramet").warning("compiling the CPU kernels: %d/%d", num, len(commands))
                    said_s = time.monotonic()
        finally:  # after a failure what waits does not begin, and what runs is ended
            threads.shutdown(wait=False, cancel_futures=True)
            if not all(each.done() for each in running):
                group.kill()


def _run(group: ProcessGroup, command: list[str], timeout_s: float) -> None:
    process = group.start(command)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise NoCompiler(f"{' '.join(command)} takes longer than {timeout_s:g} s") from error
    if process.returncode:
        raise NoCompiler(f"{' '.join(command)} failed with {process.returncode}\n{output[-2000:]}")


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
