"""Where Triton is not installed, and no CUDA device is there, every module is imported, and what is missing is named
once it is used.
"""

import subprocess
import sys

import pytest
import torch

from ramet.runtime.engine.devices import choice as device
from ramet.runtime.engine.devices.choice import choose_device
from ramet.runtime.errors import ConfigError

WITHOUT = """
import pkgutil, sys
class NoTriton:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "triton":
            raise ModuleNotFoundError("No module named 'triton'", name="triton")
sys.meta_path.insert(0, NoTriton())
"""
EVERY_MODULE = """
import importlib, ramet
OF_PEERS = "ramet.bench.peer_workers"  # each runs in an environment of its own
found = [m.name for m in pkgutil.walk_packages(ramet.__path__, "ramet.") if not m.name.startswith(OF_PEERS)]
for name in found:
    if not name.endswith("__main__"):
        importlib.import_module(name)
assert len(found) > 300 and "triton" not in sys.modules
"""
A_KERNEL = """
import torch
from ramet.kernels.gpu_ops import silu_mul
silu_mul(torch.ones(1, 8))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True)


def test_every_module_is_imported() -> None:
    done = run(EVERY_MODULE)
    assert done.returncode == 0, done.stderr


def test_a_kernel_that_is_launched_says_what_is_missing() -> None:
    done = run(A_KERNEL)
    assert done.stderr.strip().endswith("need the package triton, which is not installed: pip install triton")


def test_a_card_without_triton_is_refused_or_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="--device is cuda, but the kernels of a GPU need the package triton"):
        choose_device("cuda")
    assert choose_device("auto").name == choose_device("cpu").name == "cpu"
    assert "runs on the CPU: the kernels of a GPU need the package triton" in caplog.text
