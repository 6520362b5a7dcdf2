"""Which device is taken: a CUDA device that is new enough, else the CPU."""

import logging

import pytest
import torch
from triton.runtime.errors import OutOfResources

from ramet.runtime.engine.devices.choice import choose_device
from ramet.runtime.engine.startup import phase
from ramet.runtime.errors import ConfigError, EngineFailed


def chosen(
    name: str, capability: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> tuple[str, str]:
    """The device, and what was warned of. capability: of the CUDA device that there is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    caplog.clear()
    device = choose_device(name)
    return device.name, " ".join(r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)


@pytest.mark.parametrize(
    ("capability", "expected"), [(None, "cpu"), ((8, 0), "cuda"), ((9, 0), "cuda"), ((12, 0), "cuda")]
)
def test_auto_takes_a_card_where_there_is_one(
    capability: tuple[int, int] | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert chosen("auto", capability, monkeypatch, caplog) == (expected, "")


def test_a_card_that_is_too_old_has_to_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device, warned = chosen("auto", (7, 5), monkeypatch, caplog)
    assert device == "cpu" and "capability 7.5" in warned and "--device cuda" in warned
    assert chosen("cuda", (7, 5), monkeypatch, caplog) == ("cuda", "")


def test_cuda_that_is_not_there_is_refused_and_the_cpu_needs_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert chosen("cpu", (9, 0), monkeypatch, caplog) == ("cpu", "")
    with pytest.raises(ConfigError, match="torch finds no CUDA device"):
        chosen("cuda", None, monkeypatch, caplog)


OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver."


def test_a_driver_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def init() -> None:
        raise RuntimeError(OLD)

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", init)
    device, warned = chosen("auto", None, monkeypatch, caplog)
    assert device == "cpu" and warned.endswith("is too old (found version 11040)")
    with pytest.raises(ConfigError, match=r"no CUDA device, for .* too old \(found version 11040\): use cpu or auto"):
        chosen("cuda", None, monkeypatch, caplog)


def test_what_a_card_cannot_do_at_the_start_says_what_to_set() -> None:
    reported: list[str] = []

    def started(error: Exception) -> None:
        with phase(lambda name, seconds: reported.append(name), "graphs"):
            raise error

    with pytest.raises(ConfigError, match=r"ends at graphs: CUDA out of memory\. \(lower --mem-fraction-static"):
        started(torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB"))
    with pytest.raises(ConfigError, match=r"Hardware limit: 101376.*--attention-backend reference runs without it"):
        started(OutOfResources(114688, 101376, "shared memory"))
    with pytest.raises(ConfigError, match=r"illegal memory access.*CUDA_LAUNCH_BLOCKING=1"):
        started(torch.AcceleratorError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(ZeroDivisionError):
        started(ZeroDivisionError())
    assert not reported


def test_what_a_card_cannot_do_later_says_so_to_every_call() -> None:
    error = EngineFailed("scheduler", torch.OutOfMemoryError("CUDA out of memory."))
    assert "scheduler failed: OutOfMemoryError: CUDA out of memory. (lower --mem-fraction-static" in str(error)
    assert str(EngineFailed("scheduler", ZeroDivisionError("no"))).endswith("ZeroDivisionError: no")
