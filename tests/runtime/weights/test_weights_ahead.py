"""Which file a start reads ahead, and that a wrong note about it costs nothing."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from ramet.runtime.config import ModelArgs
from ramet.runtime.weights.ahead import NOTE, SUFFIX, read_ahead, remember, remembered

SIZE = 8 << 20


@pytest.fixture
def model(tmp_path: Path) -> ModelArgs:
    (tmp_path / "model").mkdir()
    (tmp_path / "cache").mkdir(mode=0o700)
    return ModelArgs(model_path=str(tmp_path / "model"), weights_cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def kept(tmp_path: Path, model: ModelArgs) -> Path:
    path = tmp_path / "cache" / f"one{SUFFIX}"
    path.write_bytes(os.urandom(SIZE))
    path.chmod(0o600)
    return path


def test_the_file_that_a_model_used_last_is_remembered_for_its_folder(
    model: ModelArgs, kept: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    assert remembered(model, folder) is None
    remember(kept, folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert remembered(model, folder) == remembered(model, link) == kept
    assert remembered(model, tmp_path / "other") is None
    other = kept.with_name(f"two{SUFFIX}")
    other.write_bytes(b"x")
    other.chmod(0o600)
    remember(other, folder)
    assert remembered(model, folder) == other
    assert sorted(path.suffix for path in kept.parent.iterdir()) == [NOTE, SUFFIX, SUFFIX]


def test_nothing_is_read_ahead_of_random_weights_or_when_none_are_kept(
    model: ModelArgs, kept: Path, tmp_path: Path
) -> None:
    remember(kept, tmp_path / "model")
    for options in ({"load_format": "dummy"}, {"weights_cache_gb": 0.0}):
        asked = ModelArgs(model_path=model.model_path, weights_cache_dir=model.weights_cache_dir, **options)  # type: ignore[arg-type]
        assert remembered(asked, tmp_path / "model") is None


@pytest.mark.parametrize("note", [b"", b"../../etc/passwd", b"gone.weights", b"\xff\xfe", b"a\0b.weights"], ids=str)
def test_a_note_that_names_no_such_file_is_no_error(note: bytes, model: ModelArgs, kept: Path, tmp_path: Path) -> None:
    remember(kept, tmp_path / "model")
    (path,) = kept.parent.glob(f"*{NOTE}")
    path.write_bytes(note)
    assert remembered(model, tmp_path / "model") is None


def test_a_file_that_others_may_write_to_is_not_read_ahead(model: ModelArgs, kept: Path, tmp_path: Path) -> None:
    remember(kept, tmp_path / "model")
    kept.chmod(0o622)
    assert remembered(model, tmp_path / "model") is None


def test_reading_ahead_fills_the_page_cache(kept: Path, tmp_path: Path) -> None:
    with kept.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    read_ahead(kept).join(timeout=30)
    assert resident(kept) == 1.0


@pytest.mark.parametrize("kind", ["empty", "gone"])
def test_a_file_that_cannot_be_read_ahead_is_no_error(
    kind: str, kept: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    if kind == "empty":
        kept.write_bytes(b"")
    else:
        kept.unlink()
    read_ahead(kept).join(timeout=30)
    assert not list(recwarn)  # pytest warns of what a thread raises


def resident(path: Path) -> float:
    """Share of a file's pages in the page cache."""
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        pages = (ctypes.c_ubyte * (-(-len(memory) // mmap.PAGESIZE)))()
        address = ctypes.c_void_p(np.frombuffer(memory, np.uint8).ctypes.data)
        assert ctypes.CDLL(None).mincore(address, ctypes.c_size_t(len(memory)), pages) == 0
    return sum(page & 1 for page in pages) / len(pages)
