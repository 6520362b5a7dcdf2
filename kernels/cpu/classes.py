"""Classes of CPUs that kernels are built for before anybody knows the machine, best first, and which of them fit it.

A class fits where the system says that the CPU has all its features. What is fast is measured (measured.py).
"""

import platform
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CpuClass:
    """`flags` are the compiler's, `features` are words of /proc/cpuinfo."""

    name: str
    machine: str
    flags: tuple[str, ...]
    features: frozenset[str]


def _features(words: str, base: frozenset[str] = frozenset()) -> frozenset[str]:
    return base | frozenset(words.split())


V3 = _features("avx avx2 bmi1 bmi2 f16c fma abm movbe popcnt sse4_1 sse4_2 ssse3 cx16 xsave")
V4 = _features("avx512f avx512bw avx512cd avx512dq avx512vl", V3)
BF16 = _features("avx512_bf16 avx512_vnni", V4)
AMX = _features("amx_tile amx_bf16 amx_int8", BF16)
NEON = _features("asimd fp")
BF16_FLAGS = ("-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni")

CLASSES = (
    CpuClass("amx", "x86_64", (*BF16_FLAGS, "-mamx-tile", "-mamx-bf16", "-mamx-int8"), AMX),
    CpuClass("avx512-bf16", "x86_64", BF16_FLAGS, BF16),
    CpuClass("avx512", "x86_64", ("-march=x86-64-v4",), V4),
    CpuClass("avx2", "x86_64", ("-march=x86-64-v3",), V3),
    CpuClass("neon-dotprod", "aarch64", ("-march=armv8.2-a+dotprod",), _features("asimddp atomics", NEON)),
    CpuClass("neon", "aarch64", ("-march=armv8-a",), NEON),
)


def classes_of(machine: str) -> tuple[CpuClass, ...]:
    return tuple(each for each in CLASSES if each.machine == machine)


def fitting(features: frozenset[str], machine: str = platform.machine()) -> tuple[CpuClass, ...]:
    return tuple(each for each in classes_of(machine) if each.features <= features)


def features_here(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Nothing where the system does not say."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()
