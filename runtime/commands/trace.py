"""`ramet trace`: the timeline of a server that runs, by its URL or by the id of one of its processes, as a file.

By URL it asks GET /trace, with the admin key, and saves only timelines. By id it reads the rings of this machine,
so it works although every process of the server hangs.
"""

import argparse
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from ramet.ipc.paths import SocketFolder
from ramet.runtime.errors import ConfigError
from ramet.runtime.metrics.timeline import DEFAULT_S, MAX_S, timeline, write_new
from ramet.runtime.terminal.http_client import NOT_READABLE, ServerClient, ServiceError

CHILD = "ramet.runtime.processes.child"
TIMEOUT_S = 60.0
MAX_TRACE, MAX_UNPACKED = 128 << 20, 1 << 30  # bytes of a file of others, and of what is in it
KEY_NAMES = "--api-key, RAMET_ADMIN_API_KEY or RAMET_API_KEY"


class Trace(Struct, frozen=True, rename="camel"):
    """What is read of a timeline to know that it is one."""

    trace_events: list[msgspec.Raw]


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    space = _parser().parse_args(argv)
    if not 0 < space.seconds <= MAX_S:
        raise ConfigError(f"--seconds is {space.seconds:g}, must be in (0, {MAX_S:g}]")
    if (space.url is None) == (space.pid is None):
        raise ConfigError("one of URL and --pid is needed")
    path = Path(space.output)
    _check_place(path, space.force)
    key = space.api_key or env.get("RAMET_ADMIN_API_KEY") or env.get("RAMET_API_KEY") or ""
    if space.url is not None:
        data = asked(space.url, space.seconds, key)
    else:
        data = timeline(folder_of(space.pid), space.seconds)
    try:
        (_replace if space.force else write_new)(path, data)
    except OSError as error:
        raise ConfigError(f"--output {path}: {error.strerror}") from None
    print(f"{path}: {len(data)} bytes; ui.perfetto.dev and chrome://tracing open it")
    return 0


def _check_place(path: Path, may_replace: bool) -> None:
    """Raises ConfigError where something is that must stay. A link is no regular file, wherever it leads."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # nothing is there, or writing says what is wrong
    if not stat.S_ISREG(mode):
        raise ConfigError(f"--output {path} is there already and no regular file: choose another name")
    if not may_replace:
        raise ConfigError(f"--output {path} is there already: choose another name, or --force to replace it")


def _replace(path: Path, data: bytes) -> None:
    """All of it or nothing: the old file stays where the new one cannot be written."""
    with TemporaryDirectory(prefix=".ramet-trace-", dir=path.parent) as folder:
        whole = Path(folder) / path.name
        write_new(whole, data)
        os.replace(whole, path)


def asked(url: str, seconds: float, key: str) -> bytes:
    """Of the server at `url`. Raises ConfigError and ServiceError."""
    server = ServerClient(url, key, KEY_NAMES)
    data = server.read(f"/trace?seconds={seconds:g}", MAX_TRACE, TIMEOUT_S)
    try:
        with gzip.open(io.BytesIO(data)) as file:
            msgspec.json.decode(file.read(MAX_UNPACKED), type=Trace)
    except (OSError, EOFError, zlib.error, *NOT_READABLE) as error:
        raise ServiceError(f"what {server.base} sent is not a timeline: {error}") from None
    return data


def folder_of(pid: int) -> SocketFolder:
    """Of the server that this process is the parent or a child of. Raises ConfigError."""
    for each in (pid, *_children(pid)):
        words = _command(each)
        if CHILD in words[:-2]:
            return SocketFolder(Path(words[-2]))
    raise ConfigError(f"--pid {pid} is not a process of a server on this machine")


def _children(pid: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
        if parent == pid:
            yield int(path.parent.name)


def _command(pid: int) -> list[str]:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "ramet trace", description="Write what the processes of a running server did lately, for ui.perfetto.dev."
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="of the server, as http://127.0.0.1:30000")
    parser.add_argument("--pid", type=int, help="of any of the server's processes, on this machine, instead of the URL")
    parser.add_argument("-o", "--output", default="ramet-trace.json.gz", metavar="FILE", help="[%(default)s]")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there already")
    parser.add_argument("--seconds", type=float, default=DEFAULT_S, help="how far back it goes at most [%(default)g]")
    keys = "the admin key, if there is one; else RAMET_ADMIN_API_KEY, RAMET_API_KEY"
    parser.add_argument("--api-key", default="", help=keys)
    return parser
