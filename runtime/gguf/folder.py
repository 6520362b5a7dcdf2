"""A model folder made of a GGUF file: config and tokenizer from its metadata, and a link to the file with the weights.

Decides where it is and when it is made again. Every other part of ramet reads the folder, and knows no GGUF but for the
weights.
"""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ramet.ipc.folders import OwnedFolder
from ramet.kernels.cpu.build import NoCache, cache_folder
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.gguf.config import config_of
from ramet.runtime.gguf.file import read_header
from ramet.runtime.gguf.metadata import Metadata
from ramet.runtime.gguf.tokenizer import tokenizer_files

LINK = "model.gguf"
NO_KEYS = frozenset[str]()


def folder_of(file: Path, *, tokenizer: bool = True, left_out: frozenset[str] = NO_KEYS) -> Path:
    """In the user's cache; as it was made, while file, code and `left_out` are the same. Raises ConfigError."""
    found = file.resolve().stat()
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    made_by = f"{tokenizer} {sorted(left_out)} {hashlib.sha256(code).hexdigest()}"
    key = f"{file.resolve()} {found.st_size} {found.st_mtime_ns} {made_by}"
    try:
        place = cache_folder("gguf")
        folder = place / hashlib.sha256(key.encode()).hexdigest()[:20]
        if not folder.is_dir():
            _remove_stale(place)
            with OwnedFolder.make(place, "write-") as work:
                write_folder(file, work.path / "made", tokenizer=tokenizer, left_out=left_out)
                (work.path / "made" / LINK).symlink_to(file.resolve())
                with suppress(OSError):  # another process has made it meanwhile
                    os.rename(work.path / "made", folder)
    except (NoCache, OSError) as why:
        raise ConfigError(
            f"{file}: its config and tokenizer cannot be written ({why}): set XDG_CACHE_HOME, or make a folder of it "
            f"with `ramet convert {file} TARGET`"
        ) from None
    return folder


def write_folder(file: Path, folder: Path, *, tokenizer: bool = True, left_out: frozenset[str] = NO_KEYS) -> None:
    """Config and tokenizer, in a new folder. `left_out`: keys that are taken as absent. Raises ConfigError."""
    header = read_header(file)
    metadata = {key: value for key, value in header.metadata.items() if key not in left_out}
    header = replace(header, metadata=metadata)
    try:
        files = {"config.json": config_of(header), **(tokenizer_files(Metadata(header)) if tokenizer else {})}
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        raise ConfigError(f"{file}: its metadata contradict each other: {describe(error)}") from error
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _remove_stale(place: Path) -> None:
    """Folders whose file is gone."""
    for folder in place.iterdir():
        link = folder / LINK
        if link.is_symlink() and not link.exists():
            shutil.rmtree(folder, ignore_errors=True)
