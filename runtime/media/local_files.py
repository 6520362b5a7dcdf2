"""Media in files of this machine, below the one folder that is open to clients (--allowed-local-media-path).

Links are followed first, and the file that they lead to is then opened folder by folder without following any. So
whatever is swapped meanwhile, nothing outside the folder is opened.
"""

import os
import stat
from pathlib import Path

CHUNK = 1 << 20  # bytes
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Outside(Exception):
    """The path leads out of the folder, or is no file that can be read."""


def read_below(folder: str, path: str, most: int) -> bytes:
    """No more than `most` + 1 bytes, by which the caller sees that there are more. Raises Outside."""
    root = Path(folder).resolve()
    try:
        target = Path(os.path.realpath(root / path))
        file = _opened(root, target.relative_to(root).parts)
    except (OSError, ValueError):  # a name that no file has, another folder
        raise Outside from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Outside
        return _read(file, most)
    except OSError:
        raise Outside from None
    finally:
        os.close(file)


def _opened(root: Path, parts: tuple[str, ...]) -> int:
    at = os.open(root, _FOLDER)
    for i, part in enumerate(parts):
        try:
            inside = os.open(part, _FILE if i == len(parts) - 1 else _FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = inside
    return at


def _read(file: int, most: int) -> bytes:
    parts, size = [], 0
    while size <= most and (part := os.read(file, min(CHUNK, most + 1 - size))):
        parts.append(part)
        size += len(part)
    return b"".join(parts)
