"""The folder that holds a server's sockets: its place, and the names in it. Opens no socket."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ramet.ipc.errors import RametError
from ramet.ipc.folders import OwnedFolder, check_room, remove_stale

PARENT, SERVER, SCHEDULER, DETOKENIZER = "parent", "server", "scheduler", "detokenizer"
PREFIX = "ramet-ipc-"
MAX_FILES = 64  # in a folder: sockets and rings of sixteen tokenizers and the others
MAX_SOCKET_PATH = 107  # bytes: of sockaddr_un, without the zero at its end
LONGEST_NAME = f"/{PREFIX}xxxxxxxx/tokenizer-999.sock"


def tokenizer(worker: int) -> str:
    return f"tokenizer-{worker}"


class NoPlace(RametError):
    """No folder for temporary files can hold a server's sockets and rings."""


class PathTooLong(NoPlace):
    """No temporary folder has a path that is short enough for sockets."""


class SocketFolder:
    """One running server's sockets. `create` makes the folder, `SocketFolder(path)` opens an existing one."""

    def __init__(self, path: Path, owned: OwnedFolder | None = None) -> None:
        self.path, self._owned = path, owned

    @classmethod
    def create(cls, num_bytes: int = 0) -> "SocketFolder":
        """In the first place that is short enough and has room for so many bytes, and without those that killed servers
        left. Raises NoPlace.
        """
        refused: list[str] = []
        for place in _fitting():
            remove_stale(place, PREFIX)
            try:
                return cls._made(place, num_bytes)
            except OSError as error:
                refused.append(f"{place}: {error.strerror}")
        needed = f"no folder has room for {MAX_FILES} files and {num_bytes / (1 << 20):.1f} MiB of sockets and rings"
        raise NoPlace(f"{needed} ({'; '.join(refused)}); set TMPDIR to one that has")

    @classmethod
    def _made(cls, place: Path, num_bytes: int) -> "SocketFolder":
        owned = OwnedFolder.make(place, PREFIX)
        try:
            check_room(owned.path, MAX_FILES, num_bytes)
        except OSError:
            owned.remove()
            raise
        return cls(owned.path, owned)

    def address(self, name: str) -> str:
        """The zmq address of the inbox called `name`."""
        return f"ipc://{self.path / name}.sock"

    def ring(self, name: str) -> Path:
        """The ring of the process called `name` (ipc/ring.py)."""
        return self.path / f"{name}.ring"

    def rings(self) -> dict[str, Path]:
        """The ring of every process that has begun one, by name."""
        return {path.stem: path for path in sorted(self.path.glob("*.ring"))}

    def remove(self) -> None:
        if self._owned is not None:
            self._owned.remove()


def _fitting() -> list[Path]:
    """Places whose paths are short enough. Raises NoPlace where there is none."""
    found = list(places())
    if not found:
        raise NoPlace(
            f"no folder for temporary files can be written to: TMPDIR is {os.environ.get('TMPDIR') or 'not set'}, "
            "must be a folder that this user can write to"
        )
    if fitting := [place for place in found if fits(place)]:
        return fitting
    raise PathTooLong(
        f"TMPDIR is {found[0]}, which is too long: the path of a socket has at most {MAX_SOCKET_PATH} bytes, so the "
        f"folder's has at most {MAX_SOCKET_PATH - len(LONGEST_NAME)}"
    )


def places() -> Iterator[Path]:
    """Folders for temporary files that this user may write to; the one that was asked for (TMPDIR) is first."""
    candidates = [_temporary(), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp"]
    for place in dict.fromkeys(filter(os.path.isabs, candidates)):
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            yield Path(place)


def _temporary() -> str:
    """TMPDIR or what the system has in its place; empty where none can be written to."""
    try:
        return os.fsdecode(tempfile.gettempdir())
    except FileNotFoundError:
        return ""


def fits(place: Path) -> bool:
    return len(os.fsencode(place)) + len(LONGEST_NAME) <= MAX_SOCKET_PATH
