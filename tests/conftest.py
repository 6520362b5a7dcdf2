"""What every test may import without a package: the fakes, and the maker of tiny models.

Triton kernels run in the interpreter: chosen here, before the first of them is decorated. In a worker of `pytest -n`
torch, here and in every process that a test starts, has one thread: the other cores belong to other workers.
"""

import gc
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fakes"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import patched_once

with suppress(ImportError):  # the venv of tests/clients has no hypothesis
    import samples  # noqa: F401  registers hypothesis' profiles before the command line may name one
if os.environ.setdefault("TRITON_INTERPRET", "1") == "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # `make gpu` runs what needs a card; everything else runs on the CPU
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # where a test asks for more, none spins while it waits


class Frozen:
    """A million objects live to the end: what was imported. Else every engine that closes searches them for cycles.

    Frozen when all is collected, and between two files where tests have imported more: no fixture lives there, whose
    parts, once frozen, would never be collected.
    """

    num_modules = 0
    path: Path | None = None

    @classmethod
    def freeze(cls) -> None:
        if cls.num_modules != len(sys.modules):
            gc.collect()
            gc.freeze()
            cls.num_modules = len(sys.modules)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """A third of its time went into searches for cycles, in vain: what imports make stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    Frozen.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if Frozen.path != item.path:
        Frozen.path = item.path
        Frozen.freeze()
    patched_once.patch_once()


MAX_WORKERS = 8  # each takes about a gigabyte, its servers included


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`: one worker a usable core, and none at all, only this process, where there is one core."""
    from ramet.runtime.machine import usable_cores

    cores = min(usable_cores(), MAX_WORKERS)
    return cores if cores > 1 else 0


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """A worker sends its reports as UTF-8, in which half a surrogate pair cannot be written. Some tests log one."""
    return escaped((yield))


def escaped(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {key: escaped(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(escaped(item) for item in value)
    return value


@pytest.fixture(scope="module")
def two_threads() -> Iterator[None]:
    """For tests of compiled kernels, which divide their work among torch's threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty TMPDIR, of this process and of those that it starts, whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
