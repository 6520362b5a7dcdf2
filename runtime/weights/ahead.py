"""The packed weights that a model's last start has used, read from the disk while torch is imported.

Decides which file that is, without torch: beside the files lies, for each folder of a model, the name of one. Whether
it is the right one is decided later (kept.py); it only costs time if not.
"""

import ctypes
import hashlib
import mmap
import os
import threading
from contextlib import suppress
from pathlib import Path

from ramet.kernels.cpu.build import NoCache, cache_folder, is_private
from ramet.runtime.config import ModelArgs
from ramet.runtime.machine import available_memory

SUFFIX, NOTE = ".weights", ".last"
MADV_POPULATE_READ = 22  # of Linux since 5.14; mmap.madvise would hold Python's lock meanwhile

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes, _madvise.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int


def folder_of(model: ModelArgs) -> Path:
    """Where packed weights are kept. Raises NoCache."""
    return cache_folder("weights", Path(model.weights_cache_dir) if model.weights_cache_dir else None)


def remember(kept: Path, folder: Path) -> None:
    """That `kept` has the weights of the model in `folder`. It is forgotten where it cannot be written."""
    with suppress(OSError):
        note, own = _note(kept.parent, folder), kept.parent / f"{kept.name}.{os.getpid()}"
        own.write_text(kept.name)
        os.replace(own, note)


def remembered(model: ModelArgs, folder: Path) -> Path | None:
    """None: no start before has kept any."""
    if model.load_format == "dummy" or not model.weights_cache_gb:
        return None
    try:
        place = folder_of(model)
        note = _note(place, folder)
        kept = place / Path(note.read_text() if note.is_file() else "").name
        return kept if kept.suffix == SUFFIX and is_private(kept) else None
    except (NoCache, OSError, ValueError):
        return None


def begin(model: ModelArgs, folder: Path) -> None:
    """Of the model in `folder`."""
    if (file := remembered(model, folder)) is not None:
        read_ahead(file)


def read_ahead(file: Path) -> threading.Thread:
    """Into the system's cache, by huge pages. What fails is read when it is asked for."""
    thread = threading.Thread(target=_read, args=(file,), name="read-ahead", daemon=True)
    thread.start()
    return thread


def _read(file: Path) -> None:
    with suppress(OSError, ValueError), file.open("rb") as opened:  # ValueError: it is empty
        if os.fstat(opened.fileno()).st_size > available_memory() // 2:
            return
        # private: ctypes gives no address of what cannot be written to
        memory = mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        _madvise(ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory), MADV_POPULATE_READ)


def _note(place: Path, folder: Path) -> Path:
    return place / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:20]}{NOTE}"
