"""The kernels with one compiler alone on the path, with none, and on another CPU. The compilers come from apt."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import toolchains
from live import Live

from ramet.kernels.cpu import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SUITE = (
    "tests/kernels/test_cpu_ops.py",
    "tests/kernels/test_draw.py",
    "tests/kernels/test_delta_layers.py",
    "tests/kernels/test_normalise.py",
    "tests/runtime/attention/test_backends_agree.py",
)
PACKAGES = {"g++-11": ("g++-11",), "clang++": ("clang", "libomp-dev")}


@pytest.fixture
def place() -> Iterator[Path]:
    """Removed at once, unlike tmp_path: a compiler has 300 MB."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.delenv("RAMET_CXX", raising=False)
    return place / "cache" / "ramet" / "kernels"


def kernel_suite() -> tuple[int, str]:
    """Exit code of the tests of kernels, in a process of their own, and what they printed last."""
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "-m", "not slow", *SUITE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    return done.returncode, done.stdout[-2000:]


def one_token() -> str:
    """A token of a served model; returns what the server printed."""
    with Live(max_total_tokens=4096) as server:
        reply = server.generate(text="Once upon", sampling_params={"max_new_tokens": 1, "temperature": 0})
        assert reply.status_code == 200 and reply.json()["meta_info"]["completion_tokens"] == 1
        return server.output()


def kinds(cache: Path) -> Counter[str]:
    """What is kept there, without keys."""
    return Counter(path.name.partition("-")[0] + path.suffix for path in cache.iterdir())


def only(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing but this compiler is on the path."""
    path = toolchains.alone(place, toolchains.compiler(place, name, *PACKAGES[name]))
    monkeypatch.setenv("PATH", str(path))
    return path / name


@pytest.mark.parametrize("name", PACKAGES)
def test_the_kernel_suite_passes_with_one_compiler(
    name: str, cache: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(name, place, monkeypatch)
    code, last = kernel_suite()
    assert code == 0 and "passed" in last and "skipped" not in last, last
    assert kinds(cache) == {"kernels.so": 1, "measured.json": 1}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_server_works_with_one_compiler(name: str, cache: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = only(name, place, monkeypatch)
    printed = one_token()
    assert f"compiling the CPU kernels with {path}," in printed
    assert "attention by our C++ kernel" in printed and "no C++ kernels" not in printed
    assert kinds(cache) == {"kernels.so": 1, "measured.json": 1}


def test_torch_serves_without_a_compiler(cache: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(toolchains.alone(place)))
    printed = one_token()
    assert "no C++ kernels, torch runs in their place (slower): none of g++, c++, clang++ is on the path" in printed
    assert "attention by torch" in printed and list(cache.iterdir()) == []


def test_the_kernel_suite_passes_without_a_compiler(cache: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(toolchains.alone(place)))
    code, last = kernel_suite()
    assert code == 0 and "passed" in last and "skipped" in last, last


def check(compiler: Path, place: Path, *flags: str) -> Path:
    """tests/kernels/portable/check.cpp and the kernels as one program."""
    program = place / "check"
    sources = [str(ROOT / "tests/kernels/portable/check.cpp"), *(str(build.FOLDER / name) for name in build.SOURCES)]
    portable = [flag for flag in build.FLAGS if "native" not in flag]
    command = [str(compiler), *portable, *build.WARNINGS, f"-I{build.FOLDER}", *flags, *sources, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return program


def agrees(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert (done.returncode, done.stdout[-1000:]) == (0, "0 differences\n"), done.stderr[-1000:]


@pytest.mark.parametrize("name", ["g++", *PACKAGES])
@pytest.mark.parametrize(
    "flags",
    [
        ["-march=native"],
        ["-march=x86-64"],
        ["-march=x86-64-v3"],
        ["-march=x86-64", "-DRAMET_LANES=16"],
        ["-march=x86-64", "-DRAMET_LANES=8", "-DRAMET_EMULATE_TILES", "-DRAMET_EMULATE_DOTS"],
    ],
    ids=" ".join,
)
def test_kernels_agree_with_plain_loops(name: str, flags: list[str], place: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the flags are those of x86-64")
    compiler = toolchains.compiler(place, name, *PACKAGES.get(name, (name,)))
    agrees(str(check(compiler, place, *flags)))


def test_kernels_agree_with_plain_loops_on_arm(place: Path) -> None:
    root = toolchains.unpacked(place / "arm", "g++-aarch64-linux-gnu", "qemu-user")
    compiler = toolchains.wrapped(place, root, "aarch64-linux-gnu-g++")
    flags = (f"--sysroot={root}", f"-I{root}/usr/aarch64-linux-gnu/include", "-static")
    program = check(compiler, place, *flags)
    agrees(str(toolchains.wrapped(place, root, "qemu-aarch64")), str(program))
