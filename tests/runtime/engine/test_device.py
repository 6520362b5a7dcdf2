"""Which device is taken. Where torch finds CUDA, that path has to be asked for."""

import logging

import pytest
import torch

from ramet.runtime.engine.device import choose_device
from ramet.runtime.errors import ConfigError


def chosen(name: str, *, has_cuda: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """The device, and what was warned of."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    caplog.clear()
    device = choose_device(name)
    return device.type, " ".join(r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)


@pytest.mark.parametrize("has_cuda", [False, True])
def test_auto_is_the_cpu_and_says_so_where_there_is_cuda(
    has_cuda: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device, warned = chosen("auto", has_cuda=has_cuda, monkeypatch=monkeypatch, caplog=caplog)
    assert device == "cpu" and ("--device cuda" in warned) == has_cuda


def test_cuda_is_taken_with_a_warning_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device, warned = chosen("cuda", has_cuda=True, monkeypatch=monkeypatch, caplog=caplog)
    assert device == "cuda" and "--device cuda" in warned


def test_cuda_that_is_not_there_is_refused_and_the_cpu_needs_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert chosen("cpu", has_cuda=True, monkeypatch=monkeypatch, caplog=caplog) == ("cpu", "")
    with pytest.raises(ConfigError, match="torch finds no CUDA device"):
        chosen("cuda", has_cuda=False, monkeypatch=monkeypatch, caplog=caplog)
