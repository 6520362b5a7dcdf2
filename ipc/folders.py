"""Temporary folders that do not outlive their owners. Decides whose folder it is, and when it is stale.

An owner locks its folder, and the kernel frees the lock when the owner ends, however it ends. So a folder of this user
whose lock is free is stale, and the next process that makes one of its kind removes it.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


class OwnedFolder:
    """A fresh folder of mode 0700 that exists until `remove`, or until a later `make` after this process was killed."""

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path, self._lock = path, lock

    @classmethod
    def make(cls, place: Path, prefix: str) -> "OwnedFolder":
        """In `place`, after stale folders with that prefix are removed. Raises OSError."""
        remove_stale(place, prefix)
        while True:
            path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            try:
                lock = _lock(path)
            except OSError:  # a file system without locks: nobody can lock the folder to remove it, either
                return cls(path, None)
            if lock is not None:
                return cls(path, lock)
            # another process found the folder before it was locked, and is removing it: make another one

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "OwnedFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def check_room(folder: Path, num_files: int, num_bytes: int) -> None:
    """Makes them and removes them again. Raises OSError where there is no room."""
    made = [folder / f"room-{number}" for number in range(num_files)]
    try:
        for path in made:
            path.touch()
        with made[0].open("wb") as file:
            if num_bytes and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, num_bytes)
    finally:
        for path in made:
            path.unlink(missing_ok=True)


def remove_stale(place: Path, prefix: str) -> None:
    """Remove this user's folders in `place` whose owners have ended."""
    for path in place.glob(f"{prefix}*"):
        with suppress(OSError):  # of another user, gone, or not a folder
            lock = _lock(path)
            if lock is not None:
                OwnedFolder(path, lock).remove()


def _lock(path: Path) -> int | None:
    """A descriptor that locks a folder of this user; None if another process has locked it, or it is gone by now.

    Raises OSError for what is no folder of this user, and where the file system has no locks.
    """
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_own(path, lock):
            return lock
    except BlockingIOError:
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _is_own(path: Path, opened: int) -> bool:
    """What was opened is still there under its name, and belongs to this user."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(opened)) and found.st_uid == os.geteuid()
