"""The first line of every child process: `python -m ramet.runtime.processes.child FOLDER ROLE`.

Decides what a child does with signals: it dumps its stacks on SIGUSR1 and leaves Ctrl-C, SIGTERM and SIGHUP to the
parent. It ends when its parent ends. Imports only what its role needs.
"""

import ctypes
import faulthandler
import gc
import io
import logging
import os
import signal
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

from ramet.ipc import paths
from ramet.ipc.channel import Sender
from ramet.ipc.messages import Limits, Ready
from ramet.ipc.paths import SocketFolder
from ramet.ipc.ring import NoRing
from ramet.runtime.config import decode_args
from ramet.runtime.errors import REFUSED, ConfigError
from ramet.runtime.log import setup
from ramet.runtime.options.placement import bind_others, placement_of
from ramet.runtime.workers.subordinate import leave_signals

log = logging.getLogger("ramet")

_PR_SET_PDEATHSIG = 1


# a role imports its own world and no other, so that the light processes stay light
MODULES = {
    paths.SERVER: "ramet.runtime.server.process",
    paths.SCHEDULER: "ramet.runtime.scheduler.process.start",
    paths.DETOKENIZER: "ramet.runtime.text.detokenizer_process",
    "tokenizer": "ramet.runtime.text.tokenizer_process",
}


def main(argv: list[str]) -> None:
    started = time.perf_counter()
    gc.disable()  # what imports make stays: there is nothing to collect
    folder, role = Path(argv[1]), argv[2]
    _live_and_die_with(int(os.environ["RAMET_PARENT_PID"]))
    args = decode_args((folder / "args.json").read_bytes())
    setup(args.serve.log_level, role)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a pipe, which the parent reads
    if role != paths.SCHEDULER:  # whose runner binds the thread that it is on
        bind_others(placement_of(args.execute.cpu_affinity))
    warnings.filterwarnings("ignore", "Possible (nested )?set", FutureWarning)  # of stop patterns, which are clients'
    sockets = SocketFolder(folder)
    parent = Sender(sockets.address(paths.PARENT))
    kind, _, worker = role.partition("-")
    try:
        run = import_module(MODULES[kind]).run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ramet"):
            raise
        log.error('%s is not installed: pip install "ramet[serve]"', error.name)
        sys.exit(REFUSED)
    imported = ("imports", time.perf_counter() - started)

    def ready(phases: list[tuple[str, float]], *, port: int | None = None, limits: Limits | None = None) -> None:
        gc.freeze()
        gc.enable()
        whole = ("whole", time.perf_counter() - started)
        parent.send(Ready(role, os.getpid(), [imported, *phases, whole], port, limits))

    try:
        if worker:
            run(args, sockets, int(worker), ready)
        else:
            run(args, sockets, ready)
    except (ConfigError, NoRing) as error:  # the user can mend it: one line, no traceback
        log.error("%s", error)
        sys.exit(REFUSED)


def _live_and_die_with(parent: int) -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    leave_signals()  # the parent drains, and then ends us, or writes a timeline
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv)
