"""Which device is taken: a CUDA device that is new enough, else the CPU."""

import logging

import pytest
import torch

from ramet.runtime.engine.device import choose_device
from ramet.runtime.errors import ConfigError


def chosen(
    name: str, capability: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> tuple[str, str]:
    """The device, and what was warned of. capability: of the CUDA device that there is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    caplog.clear()
    device = choose_device(name)
    return device.type, " ".join(r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)


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
