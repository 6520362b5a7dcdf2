"""`ramet doctor`: what this machine has, what ramet will choose on it, and what is missing with the command that helps.

Decides what serving needs and reports it as lines of three kinds: ok, note (it works, less well) and missing (it does
not). Exit code 1 if anything is missing. Reads installed versions from metadata and loads no torch, unless --deep asks
for what only torch knows.
"""

import argparse
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from ramet.runtime.config import Args, ServeArgs
from ramet.version import __version__

NEEDED = (
    "torch", "transformers", "tokenizers", "safetensors", "numpy", "aiohttp", "uvloop", "msgspec", "orjson", "pyzmq",
    "jinja2", "prometheus-client", "tqdm",
)  # fmt: skip
USEFUL = {"triton": "kernels on CUDA", "google-re2": "stop_regex", "pyyaml": "--config", "openai": "the client"}
INSTALL = 'pip install "ramet[serve]"'
FAST_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")
COMPILERS = ("g++", "clang++", "c++")
GIB = 2**30
LEAST_MEMORY = 1 * GIB  # the bundled model and its processes

Kind = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and for a note or a lack what to do."""

    kind: Kind
    what: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {"ok": "  ok     ", "note": "  note   ", "missing": "  MISSING"}[self.kind]
        return f"{mark} {self.what:<18} {self.found}" + (f"\n{'':10} {'':<18} -> {self.remedy}" if self.remedy else "")


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="ramet doctor", description="What this machine has and what is missing.")
    parser.add_argument("--deep", action="store_true", help="also load torch and run a matrix product (seconds)")
    options = parser.parse_args(list(argv))
    findings: list[Finding] = []
    for finding in examine(env, options.deep):
        print(finding, flush=True)
        findings.append(finding)
    missing = [f.what for f in findings if f.kind == "missing"]
    print(f"\nserving cannot work: {', '.join(missing)}" if missing else "\nready: `ramet serve` will work")
    return 1 if missing else 0


def examine(env: Mapping[str, str], deep: bool) -> Iterator[Finding]:
    yield Finding("ok", "ramet", f"{__version__}, python {platform.python_version()}, {platform.platform()}")
    yield from packages(metadata.version)
    yield cpu(_cpu_flags(), len(os.sched_getaffinity(0)))
    yield memory(available_memory())
    gpu = nvidia()
    yield gpu
    yield compiler(env)
    yield model(Args().model_folder)
    yield port(ServeArgs().host, ServeArgs().port)
    if deep:
        yield _torch()
    yield choice(has_gpu=gpu.kind == "ok", flags=_cpu_flags())


def packages(version: Callable[[str], str]) -> Iterator[Finding]:
    """`version` raises PackageNotFoundError for what is not installed."""
    found: list[str] = []
    for name in NEEDED:
        try:
            found.append(f"{name} {version(name)}")
        except metadata.PackageNotFoundError:
            yield Finding("missing", name, "not installed", INSTALL)
    for name, use in USEFUL.items():
        try:
            found.append(f"{name} {version(name)}")
        except metadata.PackageNotFoundError:
            yield Finding("note", name, f"not installed: no {use}", f"pip install {name}")
    for i in range(0, len(found), 5):
        yield Finding("ok", "" if i else "packages", ", ".join(found[i : i + 5]))


def cpu(flags: frozenset[str], cores: int) -> Finding:
    fast = [flag for flag in FAST_FLAGS if flag in flags]
    return Finding("ok", "cpu", f"{cores} cores usable, {' '.join(fast) or 'no vector flags known'}")


def memory(available: int) -> Finding:
    found = f"{available / GIB:.1f} GiB available"
    if available < LEAST_MEMORY:
        return Finding("missing", "memory", found, f"free at least {LEAST_MEMORY / GIB:.0f} GiB")
    return Finding("ok", "memory", found)


def available_memory(root: Path = Path("/")) -> int:
    """Bytes this process may still use: of the machine, or of its control group where that has less."""
    free = [_meminfo(root / "proc/meminfo")]
    groups = root / "sys/fs/cgroup"
    pairs = (
        (groups / "memory.max", groups / "memory.current"),
        (groups / "memory/memory.limit_in_bytes", groups / "memory/memory.usage_in_bytes"),
    )
    for limit, used in pairs:
        if limit.is_file() and used.is_file() and (text := limit.read_text().strip()) != "max":
            free.append(int(text) - int(used.read_text()))
    return max(0, min(free))


def nvidia() -> Finding:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding("note", "gpu", "no NVIDIA driver: the model runs on the CPU")
    query = ["--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    done = subprocess.run([tool, *query], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        return Finding(
            "note", "gpu", f"nvidia-smi fails: {done.stdout.strip() or done.stderr.strip()}", "check the driver"
        )
    return Finding("ok", "gpu", "; ".join(done.stdout.strip().splitlines()))


def compiler(env: Mapping[str, str]) -> Finding:
    asked = env.get("CXX", "")
    path = next((p for name in (asked, *COMPILERS) if name and (p := shutil.which(name))), None)
    if path is None:
        return Finding(
            "note", "c++ compiler", "none: the CPU runs plain torch instead of our kernels", "apt install g++"
        )
    return Finding("ok", "c++ compiler", path)


def model(folder: Path) -> Finding:
    lacking = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if not lacking and not list(folder.glob("*.safetensors")):
        lacking = ["*.safetensors"]
    if lacking:
        return Finding("missing", "bundled model", f"{folder} lacks {', '.join(lacking)}", "reinstall ramet")
    return Finding("ok", "bundled model", str(folder))


def port(host: str, number: int) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            return Finding(
                "note", f"port {number}", f"taken: {error.strerror}", "ramet serve --port 0 picks a free one"
            )
    return Finding("ok", f"port {number}", f"free on {host}")


def choice(has_gpu: bool, flags: frozenset[str]) -> Finding:
    device = "cuda" if has_gpu else "cpu"
    attention = "reference" if has_gpu else "cpu"
    matmul = (
        ""
        if has_gpu
        else ", bfloat16 in hardware"
        if flags & {"avx512_bf16", "amx_bf16", "bf16"}
        else ", float32 faster than bfloat16"
    )
    return Finding("ok", "ramet will choose", f"--device {device} --attention-backend {attention}{matmul}")


def _torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("missing", "torch", f"does not load: {error}", INSTALL)
    ones = torch.ones(64, 64)
    if not bool(((ones @ ones) == 64).all()):
        return Finding("missing", "torch", "a 64 x 64 matrix product is wrong", INSTALL)
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA"
    return Finding("ok", "torch", f"loads, multiplies, {torch.get_num_threads()} threads, {cuda}")


def _cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    lines = path.read_text().splitlines() if path.is_file() else []
    line = next((x for x in lines if x.lower().startswith(("flags", "features"))), ":")
    return frozenset(line.split(":", 1)[1].split())


def _meminfo(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path} has no MemAvailable")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
