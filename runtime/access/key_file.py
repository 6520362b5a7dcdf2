"""The file of --api-key-file: the clients' keys, each with the name by which the server knows its holder.

    # comment
    NAME KEY

Decides what such a file may contain. Errors and the log show names and line numbers, but no other word of the file: a
key may have been written where a name is expected.
"""

import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ramet.runtime.errors import ConfigError
from ramet.runtime.log import LOGGER

ADMIN = "admin"  # the name of whoever sends the admin key
MAX_KEYS = 4096
MAX_BYTES = 1 << 20
MIN_LENGTH, MAX_LENGTH = 8, 512  # characters of a key
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEY = re.compile(r"[\x21-\x7e]+")  # what a header can hold
FORM = "must be NAME KEY"


Version = tuple[int, int, int]


def version_of(path: str) -> Version | None:
    """Values that differ between two versions of a file, links followed. None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class NamedKey(NamedTuple):
    name: str
    key: str


def check_keys(path: str, api_key: str, admin_key: str) -> None:
    """Check the options --api-key-file, --api-key and --admin-api-key. Raises ConfigError."""
    if not path:
        return
    if api_key:
        raise ConfigError("--api-key and --api-key-file are both set: write that key into the file, with a name")
    if not admin_key:
        raise ConfigError(
            "--api-key-file needs --admin-api-key: what shows or changes the server for all clients, /metrics too, "
            "takes that key alone"
        )
    read_key_file(path, admin_key)
    if os.stat(path).st_mode & stat.S_IROTH:
        LOGGER.warning("--api-key-file %s can be read by every user of this machine: chmod 600 %s", path, path)


def read_key_file(path: str, admin_key: str) -> list[NamedKey]:
    """Raises ConfigError."""
    names: dict[str, str] = {}  # key -> name
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = f"--api-key-file {path}, line {number}"
        name, key = _entry(place, words, admin_key)
        if key in names:
            raise ConfigError(f"{place}: {name} has the same key as {names[key]}")
        names[key] = name
        if len(names) > MAX_KEYS:
            raise ConfigError(f"{place}: there are more than {MAX_KEYS} keys")
    if not names:
        raise ConfigError(f"--api-key-file {path} has no key: a line {FORM}")
    for name, num in Counter(names.values()).items():
        if num > 1:
            raise ConfigError(f"--api-key-file {path} gives {num} keys to {name}, must give one")
    return [NamedKey(name, key) for key, name in names.items()]


def _text(path: str) -> str:
    try:
        with open(path, "rb", opener=_opened) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError(f"--api-key-file {path} is not a regular file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--api-key-file {path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"--api-key-file {path} is larger than {MAX_BYTES} bytes")
    if mode & stat.S_IWOTH:
        raise ConfigError(f"--api-key-file {path} can be changed by every user of this machine: chmod 600 {path}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"--api-key-file {path} is not UTF-8 text") from None


def _opened(path: str, flags: int) -> int:
    """Open without blocking: reading a fifo would wait for its writer."""
    return os.open(Path(path), flags | os.O_NONBLOCK)


def _entry(place: str, words: list[str], admin_key: str) -> NamedKey:
    if len(words) != 2:
        raise ConfigError(f"{place} has {len(words)} word{'s' * (len(words) > 1)}, {FORM}")
    name, key = words
    if NAME.fullmatch(name) is None:
        raise ConfigError(f"{place}: the name must be 1 to 64 letters, digits, '.', '_' and '-'")
    if not MIN_LENGTH <= len(key) <= MAX_LENGTH or KEY.fullmatch(key) is None:
        raise ConfigError(f"{place}: the key must be {MIN_LENGTH} to {MAX_LENGTH} printable ASCII characters")
    if name == ADMIN:
        raise ConfigError(f"{place}: the name {ADMIN} is reserved for the admin key, choose another")
    if key == admin_key:
        raise ConfigError(f"{place}: the key of {name} is the admin key, so {name} would be an administrator")
    return NamedKey(name, key)
