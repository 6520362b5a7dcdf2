"""Files of JSON lines that are appended to. A last line that was cut off, as when the machine failed, is dropped."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

Path: TypeAlias = str | os.PathLike[str]


def whole_lines(path: Path, begins: Sequence[bytes]) -> Iterator[bytes]:
    """`begins`: what lines of such a file begin with; a last line that does not is of something else, and is given."""
    with open(path, "rb") as file:
        for line in file:
            if not _is_cut_off(line, begins):
                yield line


def end_last_line(path: Path, begins: Sequence[bytes]) -> None:
    """Before a line is appended. What was cut off goes; a file whose last line has ended may be written by others."""
    with open(path, "rb") as file:
        last = next(iter(deque(file, maxlen=1)), b"\n")
    if not last.endswith(b"\n"):
        with open(path, "r+b") as file:
            file.seek(-len(last), os.SEEK_END)
            file.write(b"" if _is_cut_off(last, begins) else last + b"\n")
            file.truncate()


def _is_cut_off(line: bytes, begins: Sequence[bytes]) -> bool:
    if line.endswith(b"\n") or not any(line[: len(each)] == each[: len(line)] for each in begins):
        return False
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.DecodeError:
        return True
    return False
