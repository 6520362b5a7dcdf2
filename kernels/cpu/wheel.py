"""The kernels of a wheel: built for each class of a machine, for systems with an older C library than this one's.

Decides what is linked in and which names a library shows, so that it disturbs no other library of the process. Runs
where a wheel is made (setup.py), not where it is used.
"""

import os
import platform
import re
import shutil
from pathlib import Path

from ramet.kernels.cpu import build
from ramet.kernels.cpu.classes import classes_of

OLDEST_GLIBC = 17  # of the tags that pip knows: manylinux_2_17
TIMEOUT_S = 1800  # of one class: nobody waits for a server here, and the machine may be busy
EXPORTS = "{ global: ramet_*; local: *; };"


def compiler_for(machine: str) -> Path:
    """RAMET_CXX, else one of this machine, else a cross compiler. Raises NoCompiler."""
    if machine == platform.machine() or "RAMET_CXX" in os.environ:
        found = next(iter(build.find_compilers()), None)
        name = ", ".join(build.compiler_names())
    else:
        name = f"{machine}-linux-gnu-g++"
        path = shutil.which(name)
        found = Path(path) if path else None
    if found is None:
        raise build.NoCompiler(f"no kernels for {machine}: none of {name} is on the path")
    return found


def build_all(folder: Path, machine: str) -> list[Path]:
    """A library for each class of the machine. Raises NoCompiler, also where no class is known."""
    classes = classes_of(machine)
    if not classes:
        raise build.NoCompiler(f"there is no class of CPUs for {machine}")
    compiler = compiler_for(machine)
    folder.mkdir(parents=True, exist_ok=True)
    exports = folder / "exports.map"
    exports.write_text(EXPORTS)
    link = ("-static-libstdc++", "-Wl,--gc-sections", "-s", f"-Wl,--version-script={exports}")
    made = []
    for each in classes:
        path = folder / f"{each.name}.so"
        build.compile_library(path, compiler, flags=(*build.PORTABLE, *each.flags), link=link, timeout_s=TIMEOUT_S)
        path.chmod(0o755)
        made.append(path)
    exports.unlink()
    return made


def platform_tag(libraries: list[Path], machine: str) -> str:
    """By the newest version of the C library that one of them asks for."""
    asked = [int(minor) for path in libraries for minor in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())]
    return f"manylinux_2_{max([OLDEST_GLIBC, *asked])}_{machine}"
