"""Not a fake: compilers of the distribution, where they are, or unpacked by apt into a folder of the test.

Nothing is installed. A machine without apt is the only one on which a test that asks for a compiler is skipped.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BINUTILS = ("as", "ld")


def compiler(place: Path, name: str, *packages: str) -> Path:
    """The program `name`; it comes from `packages` where it is not on the path."""
    found = shutil.which(name)
    if found:
        return Path(found)
    root = unpacked(place / name, *packages)
    return wrapped(place, root, name, f"-Wl,-rpath,{_libraries(root)}")  # where programs find its OpenMP


def alone(place: Path, *programs: Path) -> Path:
    """A folder for PATH in which there is nothing but these programs, and an assembler and a linker for them."""
    folder = place / "bin"
    folder.mkdir(parents=True)
    for program in programs:
        (folder / program.name).symlink_to(program)
    for name in BINUTILS if programs else ():
        found = shutil.which(name)
        assert found, f"there is no {name}: apt-get install binutils"
        (folder / name).symlink_to(found)
    return folder


def wrapped(place: Path, root: Path, name: str, *flags: str) -> Path:
    """A program of an unpacked package, with the libraries that came with it; flags are its first arguments."""
    (place / "wrappers").mkdir(parents=True, exist_ok=True)
    wrapper = place / "wrappers" / name
    program = root / "usr/bin" / name
    wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={_libraries(root)} exec {program} {" ".join(flags)} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def unpacked(place: Path, *packages: str) -> Path:
    """Packages, and what they need that this machine lacks, unpacked below `place`."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        pytest.skip(f"{packages[0]} is not here, and this machine has no apt to get it")
    root, lists = place / "root", place / "apt"
    root.mkdir(parents=True)
    for folder in ("lists/partial", "archives/partial"):
        (lists / folder).mkdir(parents=True)
    options = ["APT::Sandbox::User=root", f"Dir::State::Lists={lists / 'lists'}", f"Dir::Cache={lists}"]
    apt = ["apt-get", *(word for option in options for word in ("-o", option))]
    _run([*apt, "update"])
    planned = _run([*apt, "install", "--simulate", "--no-install-recommends", *packages])
    _run([*apt, "download", *re.findall(r"^Inst (\S+)", planned, re.MULTILINE)], lists)
    for package in lists.glob("*.deb"):
        _run(["dpkg", "-x", str(package), str(root)])
    return root


def _libraries(root: Path) -> str:
    return os.pathsep.join(str(path) for path in root.glob("usr/lib/*-linux-gnu"))


def _run(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout
