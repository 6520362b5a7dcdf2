"""Where and with what a figure was measured: command, machine, versions, commit. Imports nothing that it names.

Decides what a published command line leaves out: the values of secret options, and the folders of this machine.
"""

import datetime
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "transformers", "tokenizers", "aiohttp", "uvloop", "msgspec", "pyzmq", "numpy")
SECRETS = ("--api-key", "--admin-api-key")
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")  # of an x86 CPU, as /proc/cpuinfo calls them, newest last
_ROOT = Path(__file__).resolve().parent.parent


def stamp(command: list[str]) -> dict[str, Any]:
    """One JSON object that says everything a reader needs to judge, or to repeat, a figure."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(command),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }


def machine() -> dict[str, Any]:
    return {
        "cpu": _cpu_field("model name") or platform.machine(),
        "instructions": matrix_instructions(_cpu_field("flags")),  # a hypervisor's CPU name often says nothing
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_1m": round(os.getloadavg()[0], 2),  # well above what was measured: others were at work
        "gpu": _first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]),
    }


def versions() -> dict[str, str]:
    """Of python, ramet and the packages that are installed here."""
    from ramet.version import __version__

    found = {"python": platform.python_version(), "ramet": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit(checkout: Path = _ROOT) -> str:
    """The commit of a checkout, with + if files differ from it; empty outside a checkout."""
    head = _first_line(["git", "-C", str(checkout), "rev-parse", "HEAD"])
    changed = head and _first_line(["git", "-C", str(checkout), "status", "--porcelain", "--untracked-files=no"])
    return head + ("+" if changed else "")


def command_line(bench: str, argv: Sequence[str]) -> list[str]:
    """A bench as it could be typed again, fit to be published: no secret, and of a path only its last name."""
    words = ["python", "-m", "ramet", "bench", bench]
    hide = False
    for word in argv:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if hide:
            words.append("hidden")
        elif flag and not equals:
            words.append(flag)
        else:
            words.append(flag + equals + ("hidden" if flag in SECRETS else _last_name(value)))
        hide = flag in SECRETS and not equals and not hide
    return words


def _last_name(value: str) -> str:
    return Path(value).name or value if value.startswith(("/", "~")) else value


def matrix_instructions(flags: str) -> list[str]:
    """Those of a CPU's flags that decide how fast a matrix product is, oldest first."""
    return [name for name in INSTRUCTIONS if name in flags.split()]


def _cpu_field(name: str) -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")


def _first_line(command: list[str]) -> str:
    """What a tool says; nothing where there is no such tool or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return done.stdout.strip().split("\n")[0] if done.returncode == 0 else ""
