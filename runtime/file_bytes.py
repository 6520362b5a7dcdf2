"""Bytes of a file of numbers: read into memory of our own, or mapped.

A process that touches a mapped file ends by SIGBUS where somebody has made the file shorter. What is read is an error
then, as is a file that was written to meanwhile. To map costs less, and is for what is read before anything is served.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ramet.runtime.errors import ConfigError

Stamp = tuple[int, int, int, int]  # device, inode, bytes and time of change


class FileBytes:
    """Use in `with`. `stamp`: of a file that must be the same still. Raises OSError, and ConfigError if it is not."""

    def __init__(self, path: Path, *, mapped: bool = False, stamp: Stamp | None = None) -> None:
        self._path = path
        self.file = path.open("rb")
        try:
            self.stamp = stamp or self._stamp()
            self._check_same()
            self._whole = np.memmap(self.file, np.uint8, "c") if mapped and self.num_bytes else None
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> "FileBytes":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    @property
    def num_bytes(self) -> int:
        return self.stamp[2]

    def take(self, start: int, num: int) -> np.ndarray[Any, Any]:
        """[num] uint8, which may be written to: that stays in this process."""
        if self._whole is not None:
            return self._whole[start : start + num]
        taken = np.empty(num, np.uint8)
        rest, at = taken.data, start
        while rest:
            count = os.preadv(self.file.fileno(), [rest], at)
            if not count:
                break
            rest, at = rest[count:], at + count
        self._check_same()
        return taken

    def _stamp(self) -> Stamp:
        found = os.fstat(self.file.fileno())
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _check_same(self) -> None:
        if self._stamp() != self.stamp:
            raise ConfigError(f"{self._path} was changed while it was read")
