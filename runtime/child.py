"""The first line of every child process: `python -m ramet.runtime.child FOLDER ROLE`.

Decides how a child lives and dies: it dumps its stacks on SIGUSR1, ignores the terminal's Ctrl-C (the parent drains), and
ends when its parent ends. Imports only what its role needs.
"""

import ctypes
import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ramet.ipc import paths
from ramet.ipc.channel import Sender
from ramet.ipc.messages import Ready
from ramet.ipc.paths import SocketFolder
from ramet.runtime.config import Args, decode_args
from ramet.runtime.errors import ConfigError
from ramet.runtime.log import setup

log = logging.getLogger("ramet")

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    started = time.perf_counter()
    folder, role = Path(argv[1]), argv[2]
    _live_and_die_with(int(os.environ["RAMET_PARENT_PID"]))
    args = decode_args((folder / "args.json").read_bytes())
    setup(args.serve.log_level, role)
    sockets = SocketFolder(folder)
    parent = Sender(sockets.address(paths.PARENT))

    def ready(phases: list[tuple[str, float]], limits: bytes = b"") -> None:
        parent.send(Ready(role, os.getpid(), [*phases, ("whole", time.perf_counter() - started)], limits))

    try:
        _run(role, args, sockets, ready)
    except ConfigError as error:  # the user can mend it: one line, no traceback
        log.error("%s", error)
        sys.exit(2)


def _run(role: str, args: Args, sockets: SocketFolder, ready: Callable[..., None]) -> None:
    """Each role imports its own world, so that the light processes stay light."""
    if role == paths.SERVER:
        from ramet.runtime.server.process import run as serve

        serve(args, sockets, ready)
    elif role == paths.SCHEDULER:
        from ramet.runtime.scheduler.process import run as schedule

        schedule(args, sockets, ready)
    elif role == paths.DETOKENIZER:
        from ramet.runtime.text.decode_process import run as detokenize

        detokenize(args, sockets, ready)
    else:
        from ramet.runtime.text.encode_process import run as tokenize

        tokenize(args, sockets, int(role.rpartition("-")[2]), ready)


def _live_and_die_with(parent: int) -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv)
