"""Weights reach a GPU through pinned memory whole, and no buffer of it is written again too early."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from happens_before import Race
from recording_device import CUDA, RecordingDevice, RecordingEvent, recording_device
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny

from ramet.kernels import reference
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import family_of, read_shape
from ramet.runtime.weights import staging
from ramet.runtime.weights.files import load_weights

ROW_BYTES = 48 * 4  # of the widest matrix


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny(tmp_path / "model", hidden=32, heads=4, kv_heads=2, intermediate=48, vocab=300, tied=False)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDevice]:
    with recording_device(monkeypatch) as made:
        yield made


def loaded(folder: Path, where: str, dtype: torch.dtype = torch.float32) -> Decoder:
    shape = read_shape(folder)
    with torch.device(where):
        model = family_of(shape.architecture).decoder(shape, dtype, reference)
    load_weights(model, folder)
    return model


def assert_same(folder: Path, dtype: torch.dtype) -> None:
    found, expected = loaded(folder, "cuda", dtype), loaded(folder, "cpu", dtype)
    for (name, one), (_, other) in zip(found.named_parameters(), expected.named_parameters(), strict=True):
        assert one.device == CUDA and torch.equal(one.cpu(), other), name


@pytest.mark.parametrize("buffer_bytes", [ROW_BYTES, 1000, staging.BUFFER_BYTES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_are_those_of_the_host(
    folder: Path, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(staging, "BUFFER_BYTES", buffer_bytes)
    assert_same(folder, dtype)


def test_a_buffer_that_is_not_waited_for_is_found(
    folder: Path, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingEvent, "synchronize", lambda _: None)
    with pytest.raises(Race, match=r"host writes in aten.copy_.default what stream 0 read"):
        loaded(folder, "cuda")


def test_what_is_no_weight_is_named_by_its_place(
    folder: Path, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "BUFFER_BYTES", 1000)
    path, name = folder / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(path)
    tensors[name][37, 5] = float("nan")
    save_file(tensors, path)
    with pytest.raises(ConfigError, match=rf"{name} is nan at \[37, 5\], weights must be finite"):
        loaded(folder, "cuda")


def test_a_row_that_fits_no_buffer_goes_without_one(
    folder: Path, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "BUFFER_BYTES", 64)
    assert_same(folder, torch.float32)
