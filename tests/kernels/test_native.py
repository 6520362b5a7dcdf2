"""The native code under warnings and sanitizers, and the instructions that it compiles to for each class of CPU."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import toolchains

from ramet.kernels.cpu import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PORTABLE = ROOT / "tests/kernels/portable"
FLAGS = [flag for flag in build.FLAGS if "native" not in flag and flag != "-O2"]
# GCC 12 warns of its own header of intrinsics
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-Wno-maybe-uninitialized", "-Wno-uninitialized"]
CLASSES = {
    "avx2": ("x86-64-v3", r"vfmadd\w+ps .*%ymm", r"%zmm"),
    "avx512": ("cascadelake", r"vfmadd\w+ps .*%zmm", r"vdpbf16ps|%tmm"),
    "avx512-bf16": ("cooperlake", r"vdpbf16ps .*%zmm", r"%tmm"),
    "amx": ("sapphirerapids", r"tdpbf16ps", r"nothing of this kind"),
}

QUANTISED = {  # source, CPU -> its instructions: products of bytes, and whole numbers that become floats
    "linear_int4.cpp": {
        "x86-64-v3": (r"vpmaddubsw .*%ymm", r"%zmm|vpdpbusd"),
        "skylake-avx512": (r"vpmaddubsw .*%zmm", r"vpdpbusd"),
        "cascadelake": (r"vpdpbusd .*%zmm", r"vpmaddubsw"),
        "alderlake": (r"vpdpbusd .*%ymm", r"%zmm|vpmaddubsw"),
    },
    "linear_int8.cpp": {
        "x86-64-v3": (r"vpmaddubsw .*%ymm", r"%zmm|vpdpbusd"),
        "skylake-avx512": (r"vpmaddubsw .*%zmm", r"vpdpbusd"),
        "cascadelake": (r"vpdpbusd .*%zmm", r"vpmaddubsw"),
        "alderlake": (r"vpdpbusd .*%ymm", r"%zmm|vpmaddubsw"),
    },
    "linear_int8wo.cpp": {
        "x86-64-v3": (r"vcvtdq2ps .*%ymm", r"%zmm"),
        "skylake-avx512": (r"vcvtdq2ps .*%zmm", r"vpmaddubsw"),
    },
}


def compiler() -> str:
    found = shutil.which("g++")
    if found is None:
        pytest.skip("no g++ here")
    return found


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, (done.stdout[-1000:], done.stderr[-3000:])
    return done.stdout


def sources() -> list[Path]:
    return [build.FOLDER / name for name in build.SOURCES]


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("tiles", [False, True])
def test_kernels_are_clean_under_a_sanitizer(sanitizer: str, tiles: bool, tmp_path: Path) -> None:
    flags = ["-O1", "-g", "-march=native", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    flags += ["-march=x86-64-v3", "-DRAMET_EMULATE_TILES", "-DRAMET_EMULATE_DOTS"] if tiles else []
    program = tmp_path / "check"
    run(compiler(), *FLAGS, *WARNINGS, *flags, f"-I{build.FOLDER}", PORTABLE / "check.cpp", *sources(), "-o", program)
    assert run(program) == "0 differences\n"


@pytest.mark.parametrize("flags", [["-O2"], ["-O1", "-g", "-fsanitize=thread"]], ids=" ".join)
def test_each_piece_of_a_job_runs_once(flags: list[str], tmp_path: Path) -> None:
    program = tmp_path / "pool"
    files = PORTABLE / "pool.cpp", build.FOLDER / "pool.cpp"
    run(compiler(), *FLAGS, *WARNINGS, *flags, f"-I{build.FOLDER}", *files, "-o", program)
    assert run(program) == "0 differences\n"


@pytest.mark.parametrize(("source", "march"), [(source, march) for source in QUANTISED for march in QUANTISED[source]])
def test_quantised_layers_use_the_instructions_of_their_cpu(source: str, march: str, tmp_path: Path) -> None:
    wanted, forbidden = QUANTISED[source][march]
    target = tmp_path / "linear.o"
    run(compiler(), *FLAGS, *WARNINGS, "-O2", f"-march={march}", "-c", build.FOLDER / source, "-o", target)
    listing = run("objdump", "-d", "--no-show-raw-insn", target)
    assert re.search(wanted, listing) and re.search(r"vfn?madd\w+ps", listing) and not re.search(forbidden, listing)


@pytest.mark.parametrize("name", CLASSES)
def test_linear_layers_use_the_instructions_of_their_class(name: str, tmp_path: Path) -> None:
    march, wanted, forbidden = CLASSES[name]
    target = tmp_path / "linear.o"
    run(compiler(), *FLAGS, *WARNINGS, "-O2", f"-march={march}", "-c", build.FOLDER / "linear.cpp", "-o", target)
    listing = run("objdump", "-d", "--no-show-raw-insn", target)
    assert re.search(wanted, listing) and not re.search(forbidden, listing)


@pytest.mark.parametrize("source", ["linear.cpp", "linear_int8.cpp", "linear_int4.cpp"])
def test_loops_over_weights_prefetch(source: str, tmp_path: Path) -> None:
    """GCC leaves out a call that does nothing else."""
    target = tmp_path / "linear.o"
    run(compiler(), *FLAGS, *WARNINGS, "-O2", "-march=cooperlake", "-c", build.FOLDER / source, "-o", target)
    blocks = re.split(r"\n.*\tj\w+ .*", run("objdump", "-d", "--no-show-raw-insn", target))
    loops = [block for block in blocks if len(re.findall(r"vpdpbusd|vdpbf16ps", block)) >= 16]
    assert len(loops) > 4 and all("prefetch" in loop for loop in loops)


@pytest.mark.parametrize("source", ["linear.cpp", "linear_int8wo.cpp"])
def test_sums_of_a_layer_stay_in_the_registers_of_avx2(source: str, tmp_path: Path) -> None:
    """A sum in memory makes its loop twice as slow or worse: each of its products waits for a store and a load."""
    target = tmp_path / "linear.o"
    run(compiler(), *FLAGS, *WARNINGS, "-O2", "-march=x86-64-v3", "-c", build.FOLDER / source, "-o", target)
    blocks = re.split(r"\n.*\tj\w+ .*", run("objdump", "-d", "--no-show-raw-insn", target))
    tiles = [block for block in blocks if 16 <= block.count("vfmadd231ps") <= 2 * block.count("vbroadcast")]
    in_memory = [block for block in tiles if re.search(r"vmov\w+ +%ymm\d+,.*\(%r[sb]p\)", block)]
    assert len(tiles) >= 9 and not in_memory, in_memory


@pytest.mark.parametrize("name", CLASSES)
def test_attention_uses_the_instructions_of_its_class(name: str, tmp_path: Path) -> None:
    march, wanted, forbidden = CLASSES[name]
    target = tmp_path / "attention.o"
    run(compiler(), *FLAGS, *WARNINGS, "-O2", f"-march={march}", "-c", build.FOLDER / "attention.cpp", "-o", target)
    listing = run("objdump", "-d", "--no-show-raw-insn", target)
    assert re.search(wanted, listing) and not re.search(forbidden, listing)
    assert re.search(r"vpmaddubsw .*%ymm" if name == "avx2" else r"vpdpbusd .*%zmm", listing), "keys of 8 bits"
    assert re.search(r"prefetcht1", listing), "prefetching was left out"


def test_linear_layers_use_the_instructions_of_arm(tmp_path: Path) -> None:
    root = toolchains.unpacked(tmp_path / "arm", "g++-aarch64-linux-gnu")
    arm = toolchains.wrapped(tmp_path, root, "aarch64-linux-gnu-g++")
    flags = (f"--sysroot={root}", f"-I{root}/usr/aarch64-linux-gnu/include", "-O2", "-march=armv8.2-a+dotprod")
    target = tmp_path / "linear.o"
    dump = toolchains.wrapped(tmp_path, root, "aarch64-linux-gnu-objdump")
    for source in ("linear.cpp", *QUANTISED):
        run(arm, *FLAGS, *WARNINGS, *flags, "-c", build.FOLDER / source, "-o", target)
        listing = run(dump, "-d", target)
        assert re.search(r"fml[as]\s+v\d+\.4s", listing)
        assert source != "linear_int4.cpp" or re.search(r"sdot\s+v\d+\.4s", listing)
