"""The folder that holds a server's sockets: fresh, mode 0700, removed at the end. Decides names; opens nothing."""

import shutil
import tempfile
from pathlib import Path

PARENT, SERVER, SCHEDULER, DETOKENIZER = "parent", "server", "scheduler", "detokenizer"


def tokenizer(worker: int) -> str:
    return f"tokenizer-{worker}"


class SocketFolder:
    """One running server's sockets. `create` makes the folder, `SocketFolder(path)` opens an existing one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls) -> "SocketFolder":
        # mkdtemp makes the folder 0700 and with an unpredictable name; socket paths must stay under 107 bytes
        return cls(Path(tempfile.mkdtemp(prefix="ramet-")))

    def address(self, name: str) -> str:
        """The zmq address of the inbox called `name`."""
        return f"ipc://{self.path / name}.sock"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
