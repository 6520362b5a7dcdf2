"""`ramet serve`: start the processes, wait until all are ready, say so, watch them. The parent process.

Decides which processes start, and with which arguments. Knows the roles, not what they do. Imports no torch, so that
the parent stays small.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ramet.ipc import paths
from ramet.ipc.channel import Receiver, Sender
from ramet.ipc.messages import Limits, Ready, ToParent
from ramet.ipc.paths import NoPlace, SocketFolder
from ramet.ipc.ring import FEW_RECORDS, MANY_RECORDS, ring_bytes
from ramet.runtime.config import Args, encode_args, resolve
from ramet.runtime.errors import REFUSED, ConfigError
from ramet.runtime.log import setup
from ramet.runtime.metrics import timeline
from ramet.runtime.processes.outputs import Outputs
from ramet.runtime.processes.service_manager import ServiceManager
from ramet.runtime.processes.supervise import KILLED_S, ChildDied, Supervisor
from ramet.runtime.weights import ahead

log = logging.getLogger("ramet")

SETTINGS_BYTES = 1 << 16
QUIET = "99"  # torch's profiler writes lines of its own to stderr below that


def serve(args: Args) -> int:
    """Run a server until it gets a signal to end. Returns the process's exit code."""
    started = time.perf_counter()
    args = resolve(args)
    timeline.check_folder(args.serve.trace_dir)
    outputs = Outputs()
    try:
        return _serve(args, outputs, started)
    finally:
        outputs.close()


def _serve(args: Args, outputs: Outputs, started: float) -> int:
    setup(args.serve.log_level, "parent", outputs)
    ahead.begin(args.model, args.model_folder)
    manager = ServiceManager.taken_from(os.environ)
    manager.starting()
    folder = _socket_folder(len(roles(args)))
    inbox: Receiver[Ready] = Receiver(folder.address(paths.PARENT), ToParent)
    write_timeline = partial(timeline.write_unasked, folder, args.serve.trace_dir)
    supervisor = Supervisor(inbox, write_timeline, manager, outputs)
    try:
        for role in roles(args):
            supervisor.watch(role, _spawn(args, folder, role, outputs))
        ready = supervisor.wait_ready()
        server = _send_limits(args, folder, ready)
        supervisor.wait_served()
        url = _announce(args, ready, time.perf_counter() - started, outputs)
        manager.ready(url, folder.ring(paths.SERVER), args.execute.watchdog_timeout)
        return supervisor.run(server, args.serve.drain_timeout_s)
    except ChildDied as death:
        if death.name == "signal":
            log.info("a signal to end came before the server was ready")
            return 0
        if death.code == REFUSED:  # the child has said why
            return REFUSED
        log.error("%s", death)
        return 1
    finally:
        manager.stopping(KILLED_S)
        supervisor.stop()
        folder.remove()


def _socket_folder(num_processes: int) -> SocketFolder:
    needed = ring_bytes(MANY_RECORDS) + (num_processes - 1) * ring_bytes(FEW_RECORDS) + SETTINGS_BYTES
    try:
        folder = SocketFolder.create(needed)
    except NoPlace as error:
        raise ConfigError(str(error)) from None
    wanted = os.environ.get("TMPDIR", "")
    if wanted and folder.path.parent != Path(os.path.abspath(wanted)):
        log.warning("TMPDIR is %s, which cannot hold the sockets: they are in %s", wanted, folder.path.parent)
    return folder


def roles(args: Args) -> list[str]:
    """Every child process by name, the slowest to start first."""
    workers = [paths.tokenizer(i) for i in range(args.serve.tokenizer_worker_num)]
    return [paths.SCHEDULER, paths.SERVER, paths.DETOKENIZER, *workers]


def _spawn(args: Args, folder: SocketFolder, role: str, outputs: Outputs) -> "subprocess.Popen[bytes]":
    settings = folder.path / "args.json"
    if not settings.exists():
        settings.touch(mode=0o600)
        settings.write_bytes(encode_args(args))
    package_root = str(Path(sys.modules["ramet"].__path__[0]).parent)
    search = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")]))
    own = {"RAMET_PARENT_PID": str(os.getpid()), "PYTHONPATH": search}
    environment = {"KINETO_LOG_LEVEL": QUIET, **os.environ, **own}
    command = [sys.executable, "-m", "ramet.runtime.processes.child", str(folder.path), role]
    return outputs.start(command, environment)


def _send_limits(args: Args, folder: SocketFolder, ready: Sequence[Ready]) -> Sender:
    """Tell tokenizers and server what the scheduler found. Returns the way to the server."""
    limits = next(message.limits for message in ready if message.limits is not None)
    for worker in range(args.serve.tokenizer_worker_num):
        Sender(folder.address(paths.tokenizer(worker))).send(limits)
    server = Sender(folder.address(paths.SERVER))
    server.send(limits)
    return server


def _announce(args: Args, ready: Sequence[Ready], whole_s: float, outputs: Outputs) -> str:
    """Says where requests are answered, and returns it."""
    for message in ready:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in message.phases)
        log.info("%-12s ready (s): %s", message.name, phases)
    port = next(message.port for message in ready if message.port is not None)
    host = args.serve.host if args.serve.host not in ("0.0.0.0", "::") else "127.0.0.1"
    scheme = "https" if args.serve.ssl_certfile else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    name = "$RAMET_API_KEY" if "RAMET_API_KEY" in os.environ else "YOUR_KEY"  # the key itself is never printed
    key = f' -H "Authorization: Bearer {name}"' if args.serve.api_key or args.serve.api_key_file else ""
    path, body = _example(next(message.limits for message in ready if message.limits is not None))
    outputs.print(f"\nramet serves {args.model_name} at {url} (ready in {whole_s:.1f} s). Try:\n")
    outputs.print(f"  curl {url}{path}{key} -H 'Content-Type: application/json' -d '{body}'\n")
    if args.serve.ui:
        outputs.print(f"  or open {url}/ui in a browser\n")
    return url


def _example(limits: Limits) -> tuple[str, str]:
    """The path and the body of a request that this model answers."""
    if limits.generates:
        body = '{"text": "The capital of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 16}}'
        return "/generate", body
    return "/v1/classify" if limits.num_labels else "/v1/embeddings", '{"input": "The capital of France is Paris."}'
