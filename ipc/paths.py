"""The folder that holds a server's sockets: its place, and the names in it. Opens no socket."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ramet.ipc.folders import OwnedFolder, remove_stale

PARENT, SERVER, SCHEDULER, DETOKENIZER = "parent", "server", "scheduler", "detokenizer"
PREFIX = "ramet-ipc-"
MAX_SOCKET_PATH = 107  # bytes: of sockaddr_un, without the zero at its end
LONGEST_NAME = f"/{PREFIX}xxxxxxxx/tokenizer-999.sock"


def tokenizer(worker: int) -> str:
    return f"tokenizer-{worker}"


class PathTooLong(Exception):
    """No temporary folder has a path that is short enough for sockets."""


class SocketFolder:
    """One running server's sockets. `create` makes the folder, `SocketFolder(path)` opens an existing one."""

    def __init__(self, path: Path, owned: OwnedFolder | None = None) -> None:
        self.path, self._owned = path, owned

    @classmethod
    def create(cls) -> "SocketFolder":
        """In the first place that is short enough, and without those that killed servers left. Raises PathTooLong."""
        fitting = [place for place in places() if fits(place)]
        if not fitting:
            raise PathTooLong(
                f"TMPDIR is {os.fsdecode(tempfile.gettempdir())}, which is too long: the path of a socket has at most "
                f"{MAX_SOCKET_PATH} bytes, so the folder's has at most {MAX_SOCKET_PATH - len(LONGEST_NAME)}"
            )
        for place in fitting[1:]:
            remove_stale(place, PREFIX)
        owned = OwnedFolder.make(fitting[0], PREFIX)
        return cls(owned.path, owned)

    def address(self, name: str) -> str:
        """The zmq address of the inbox called `name`."""
        return f"ipc://{self.path / name}.sock"

    def ring(self, name: str) -> Path:
        """The ring of the process called `name` (ipc/ring.py)."""
        return self.path / f"{name}.ring"

    def rings(self) -> dict[str, Path]:
        """Of every process that has begun one, by name."""
        return {path.stem: path for path in sorted(self.path.glob("*.ring"))}

    def remove(self) -> None:
        if self._owned is not None:
            self._owned.remove()


def places() -> Iterator[Path]:
    """Folders for temporary files that this user may write to; the one that was asked for (TMPDIR) is first."""
    candidates = [tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp"]
    for place in dict.fromkeys(filter(os.path.isabs, candidates)):
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            yield Path(place)


def fits(place: Path) -> bool:
    return len(os.fsencode(place)) + len(LONGEST_NAME) <= MAX_SOCKET_PATH
