"""Kernels that come built: which class a CPU gets, that none of other sources is taken, and what a wheel has."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toolchains

from ramet.kernels.cpu import build, wheel
from ramet.kernels.cpu.classes import CLASSES, classes_of, features_here, fitting
from ramet.runtime.commands import doctor

ROOT = Path(__file__).parents[2]
NAMES = [each.name for each in CLASSES]
HERE = fitting(features_here())
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="of x86-64")
SUITE = (
    "tests/kernels/test_cpu_ops.py",
    "tests/kernels/test_draw.py",
    "tests/kernels/test_normalise.py",
    "tests/kernels/test_adapters.py",
    "tests/kernels/test_rows_are_apart_on_a_cpu.py",
    "tests/runtime/attention/test_backends_agree.py",
    "tests/runtime/attention/test_rows_are_apart.py",
    "tests/runtime/layers",
)
PROGRAM = """
import logging, sys
from pathlib import Path
from ramet import LLM
from ramet.kernels.cpu import build

logging.basicConfig(stream=sys.stderr)
llm = LLM(max_total_tokens=2048, random_seed=0)
(reply,) = llm.generate(["The capital of France is"], {"max_new_tokens": 1, "temperature": 0})
print(build.built_library(), reply["meta_info"]["completion_tokens"], llm.resolved["attention_backend"])
"""


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAMET_KERNELS", "RAMET_CXX"):
        monkeypatch.delenv(name, raising=False)


def library(folder: Path, name: str, inside: str) -> Path:
    path = folder / f"{name}.so"
    path.write_bytes(b"\x7fELF" + inside.encode() + b"\0")
    return path


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """As a wheel for x86-64 has them."""
    for each in classes_of("x86_64"):
        library(tmp_path, each.name, build.identity())
    return tmp_path


def features(name: str) -> frozenset[str]:
    return next(each.features for each in CLASSES if each.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_a_cpu_gets_the_best_class_of_which_it_has_everything(name: str) -> None:
    each = next(each for each in CLASSES if each.name == name)
    assert fitting(each.features | {"more"}, each.machine)[0] == each
    for missing in each.features:
        assert each not in fitting(each.features - {missing}, each.machine)
    assert fitting(each.features, "riscv64") == ()


def test_features_are_read_as_x86_and_arm_write_them(tmp_path: Path) -> None:
    (tmp_path / "x86").write_text("processor : 0\nflags\t\t: fpu avx2\nbugs : x\n\nflags : other\n")
    (tmp_path / "arm").write_text("processor : 0\nFeatures\t: fp asimd\n")
    assert features_here(tmp_path / "x86") == {"fpu", "avx2"} and features_here(tmp_path / "arm") == {"fp", "asimd"}
    assert features_here(tmp_path / "none") == frozenset()


@X86
def test_the_built_library_of_the_best_class_is_taken(built: Path) -> None:
    assert build.built_library(built, features("amx")) == built / "amx.so"
    assert build.built_library(built, features("avx2")) == built / "avx2.so"
    assert build.built_library(built, frozenset()) is None
    assert build.built_library(built / "none", features("amx")) is None


@X86
def test_a_library_of_other_sources_is_never_taken(built: Path) -> None:
    library(built, "amx", "ramet kernels of sources 0123456789abcdef0123")
    assert build.built_library(built, features("amx")) == built / "avx512-bf16.so"


@X86
def test_a_compiler_that_is_named_is_used_and_a_class_that_is_named_too(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMET_CXX", "g++")
    assert build.built_library(built, features("amx")) is None
    monkeypatch.setenv("RAMET_KERNELS", "avx2")
    assert build.built_library(built, features("amx")) == built / "avx2.so"
    monkeypatch.delenv("RAMET_CXX")
    monkeypatch.setenv("RAMET_KERNELS", "compile")
    assert build.built_library(built, features("amx")) is None
    assert build.chosen_flags() == build.FLAGS


@X86
def test_a_class_that_is_unknown_or_that_the_cpu_is_not_of_is_refused(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMET_KERNELS", "avx3")
    with pytest.raises(build.WrongKernels, match=r"'avx3', must be compile, amx, .*avx2, or unset"):
        build.built_library(built)
    (finding,) = doctor.kernels()
    assert "must be compile, amx" in finding.found and finding.kind == "missing"
    monkeypatch.setenv("RAMET_KERNELS", "amx")
    with pytest.raises(build.WrongKernels, match="lacks amx_tile"):
        build.built_library(built, features("avx512") | {"amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni"})


@X86
def test_doctor_says_which_library_came_built(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "features_here", lambda: features("avx512"))
    monkeypatch.setattr(build.built_library, "__defaults__", (built, None))
    assert list(doctor.kernels()) == [doctor.Finding("ok", "cpu kernels", "came built for CPUs with avx512")]


def test_a_wheel_is_for_systems_whose_c_library_has_what_is_asked_for(tmp_path: Path) -> None:
    paths = [library(tmp_path, "a", "GLIBC_2.9 GLIBC_2.34"), library(tmp_path, "b", "GLIBC_2.17")]
    assert wheel.platform_tag(paths, "x86_64") == "manylinux_2_34_x86_64"
    assert wheel.platform_tag(paths[1:], "aarch64") == "manylinux_2_17_aarch64"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [each.name for each in HERE])
def test_each_class_that_this_cpu_is_of_computes_what_the_reference_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not build.find_compilers():
        pytest.skip("no C++ compiler here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("RAMET_KERNELS", name)
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "-m", "not slow", *SUITE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0 and "passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-2000:]


INSTRUCTIONS = {  # of the whole library: some that are wanted, and what must not be there
    "avx2": (("vfmadd231ps .*%ymm", "vpmaddubsw .*%ymm", "vcvtph2ps"), "%zmm"),
    "avx512": (("vfmadd231ps .*%zmm", "vpmaddubsw .*%zmm"), "vdpbf16ps|vpdpbusd|%tmm"),
    "avx512-bf16": (("vfmadd231ps .*%zmm", "vdpbf16ps .*%zmm", "vpdpbusd .*%zmm"), "%tmm"),
    "amx": (("tdpbf16ps", "vdpbf16ps .*%zmm", "vpdpbusd .*%zmm"), "nothing of this kind"),
    "neon": ((r"fmla\s+v\d+\.4s",), r"[su]dot\s"),
    "neon-dotprod": ((r"fmla\s+v\d+\.4s", r"sdot\s+v\d+\.4s"), "nothing of this kind"),
}


def make_wheel(copy: Path, folder: Path, machine: str) -> Path:
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(copy)]
    environment = {**os.environ, "RAMET_BUILD_KERNELS": machine}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (made,) = folder.glob("*.whl")
    return made


def libraries_of(made: Path, machine: str, folder: Path, dump: str | Path) -> None:
    """Check those of a wheel: all classes are there, each with its instructions, and they are what the tag says."""
    shutil.unpack_archive(made, folder, "zip")
    found = folder / "ramet/kernels/cpu/built"
    assert {path.stem for path in found.iterdir()} == {each.name for each in classes_of(machine)}
    for path in found.iterdir():
        data, (wanted, forbidden) = path.read_bytes(), INSTRUCTIONS[path.stem]
        assert build.identity().encode() in data
        needed = subprocess.run([str(dump), "-p", str(path)], capture_output=True, text=True, check=True).stdout
        assert "libstdc++" not in needed, "its version would have to be the other system's"
        listing = subprocess.run(
            [str(dump), "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True
        ).stdout
        assert [each for each in wanted if not re.search(each, listing)] == [] and not re.search(forbidden, listing)
    assert made.name.endswith(f"-py3-none-{wheel.platform_tag(list(found.iterdir()), machine)}.whl")
    assert not list(folder.glob("*.data")) and "Root-Is-Purelib: false" in next(folder.glob("*/WHEEL")).read_text()


def checkout(folder: Path) -> Path:
    """A copy of ours, because a build writes into it."""
    made = folder / "copy"
    shutil.copytree(ROOT, made, symlinks=True, ignore=shutil.ignore_patterns(".*", "docs", "tests", "build"))
    return made


def environment_with(made: Path, folder: Path) -> Path:
    """A Python that has the wheel, and of other packages those of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    fresh = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(fresh), "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(made)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    others = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "others.pth").write_text(others + "\n")
    return fresh


@X86
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_wheel_serves_without_a_compiler_by_the_library_of_this_cpu(tmp_path: Path) -> None:
    if not build.find_compilers() or not HERE:
        pytest.skip("no C++ compiler here, or no class for this CPU")
    made = make_wheel(checkout(tmp_path), tmp_path / "dist", "x86_64")
    libraries_of(made, "x86_64", tmp_path / "unpacked", "objdump")
    fresh = environment_with(made, tmp_path / "venv")
    bare = {"PATH": str(toolchains.alone(tmp_path)), "HOME": str(tmp_path / "home")}
    for name in ("", *(each.name for each in HERE)):
        asked = {"RAMET_KERNELS": name} if name else {}
        done = subprocess.run(
            [str(fresh), "-c", PROGRAM], cwd=tmp_path, env=bare | asked, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        path, tokens, attention = done.stdout.split()
        assert Path(path).is_relative_to(tmp_path / "venv") and Path(path).stem == (name or HERE[0].name)
        assert (tokens, attention) == ("1", "cpu") and "no C++ kernels" not in done.stderr
    assert not list((tmp_path / "home").rglob("*.so"))
    said = subprocess.run([str(fresh), "-m", "ramet", "doctor"], cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert f"came built for CPUs with {HERE[0].name}" in said.stdout, said.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_wheel_for_arm_is_made_by_a_cross_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = toolchains.unpacked(tmp_path / "arm", "g++-aarch64-linux-gnu")
    flags = (f"--sysroot={root}", f"-I{root}/usr/aarch64-linux-gnu/include")
    compiler = toolchains.wrapped(tmp_path, root, "aarch64-linux-gnu-g++", *flags)
    dump = toolchains.wrapped(tmp_path, root, "aarch64-linux-gnu-objdump")
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    made = make_wheel(checkout(tmp_path), tmp_path / "dist", "aarch64")
    libraries_of(made, "aarch64", tmp_path / "unpacked", dump)


def test_without_its_compiler_a_wheel_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(toolchains.alone(tmp_path)))
    with pytest.raises(build.NoCompiler, match=r"g\+\+"):
        wheel.build_all(tmp_path / "built", platform.machine())
    with pytest.raises(build.NoCompiler, match="no class of CPUs for riscv64"):
        wheel.build_all(tmp_path / "built", "riscv64")
