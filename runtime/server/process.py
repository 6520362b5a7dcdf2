"""The server process: reserves its port, answers that it starts until the limits come, serves until it is drained.

Decides the order of start and end, and the exit code: 0 after a drain, 1 when another process ended.
"""

import asyncio
import dataclasses
import errno
import ipaddress
import os
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web
from msgspec.structs import replace

from ramet.ipc import paths
from ramet.ipc.channel import AsyncReceiver, Sender
from ramet.ipc.control import MemoryTag
from ramet.ipc.messages import Drain, Limits, PeerDied, TokenStep, ToServer
from ramet.ipc.ring import MessageRing
from ramet.runtime.config import Args, ServeArgs
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.errors import ClientError, ConfigError, ServerError
from ramet.runtime.intake.chat import Style, style_of
from ramet.runtime.log import LOGGER
from ramet.runtime.machine import collect_rarely, keep_freed_blocks
from ramet.runtime.media.service import MediaIntake
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.server import garbage
from ramet.runtime.server.app import make_app
from ramet.runtime.server.http.accepting import accepting, allowed_connections, raise_descriptor_limit
from ramet.runtime.server.http.certificates import certificates_of
from ramet.runtime.server.http.response_store import ResponseStore
from ramet.runtime.server.http.service import Front, Service
from ramet.runtime.server.liveness import Liveness, peers_of
from ramet.runtime.text.defaults import sampling_defaults
from ramet.runtime.text.labels import read_labels
from ramet.runtime.text.pooling import read_pooling

if TYPE_CHECKING:
    from ramet.runtime.server.tracing.otlp import OtlpTraces

BACKLOG = 2048  # connections that wait to be accepted
LAST_WRITES_S = 2.0  # for handlers to write what is left
KEPT_BYTES = 8 << 20  # of freed memory, for the next bodies: freed_memory.py gives it back when none comes


def run(args: Args, sockets: paths.SocketFolder, ready: Callable[..., None]) -> None:
    """Serve. `ready(phases, port=...)` gets the start-up phases in seconds and the port that was bound.

    It is called when connections are accepted, and again when requests are computed. Returns after a drain; raises
    SystemExit(1) when another process ended, and ConfigError for a port in use.
    """
    keep_freed_blocks(KEPT_BYTES)
    started = time.perf_counter()
    listener = bind(args.serve)
    port = listener.getsockname()[1]
    allowed = allowed_connections(args.serve, raise_descriptor_limit())
    args = replace(args, serve=replace(args.serve, port=port, max_connections=allowed))
    phases = [("bind", time.perf_counter() - started)]
    collect_rarely()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(_serve(args, sockets, listener, lambda: ready(phases, port=port)))
    if code:
        raise SystemExit(code)


def bind(serve: ServeArgs) -> socket.socket:
    """A socket that listens: connections wait in its backlog until the server serves. Port 0 picks a free port.

    Logs if others may use the server without a key.
    """
    try:
        found = socket.getaddrinfo(serve.host, serve.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ConfigError(
            f"--host {serve.host} has no address ({error.strerror}), must be one of this machine, as 127.0.0.1"
        ) from None
    family, *_, address = found[0]
    if not (serve.api_key or serve.api_key_file or serve.ssl_ca_certs or ipaddress.ip_address(address[0]).is_loopback):
        LOGGER.warning("--host %s without --api-key: whoever reaches this machine may use the server", serve.host)
    try:  # to listen at once: two sockets may share a bound port for as long as none of them listens
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            reason = os.strerror(error.errno or 0)
            raise ConfigError(f"cannot listen on {serve.host} port {serve.port}: {reason}") from None
        fact = f"--port {serve.port} is in use on {serve.host}; choose another, or 0 for a free one"
        raise ConfigError(fact) from None


def make_runner(front: Front) -> web.AppRunner:
    """A disconnect cancels its handler at once, which aborts its sequences. What connections are: connections.py."""
    return web.AppRunner(make_app(front), handler_cancellation=True, shutdown_timeout=LAST_WRITES_S)


async def _serve(args: Args, sockets: paths.SocketFolder, listener: socket.socket, ready: Callable[[], None]) -> int:
    style, certificates = style_of(args), certificates_of(args.serve)
    LOGGER.info("%s", style.line)
    ring = MessageRing(sockets.ring(paths.SERVER), ToServer, {TokenStep: "uids"})
    # made before the engine is ready, so that nothing sent to the server is lost
    inbox: AsyncReceiver[ToServer] = AsyncReceiver(sockets.address(paths.SERVER), ToServer)
    front, traces = Front(args, Metrics()), _make_traces(args)
    async with AsyncExitStack() as used:  # by handlers, so it ends after them
        if traces is not None:
            used.callback(traces.close)
        runner = make_runner(front)
        await runner.setup()
        assert runner.server is not None
        try:
            async with accepting(runner.server, listener, args.serve, front.metrics, certificates):
                ready()
                limits = await inbox.recv()  # what the engine allows, or why there will be none
                if not isinstance(limits, Limits):
                    assert isinstance(limits, Drain | PeerDied), f"{type(limits).__name__} came before the limits"
                    return 0 if isinstance(limits, Drain) else 1
                media = _make_media(args, sockets, limits)
                if media is not None:
                    used.push_async_callback(media.close)
                client = _make_client(args, sockets, limits, front.metrics, media)
                used.callback(client.request_log.close)
                peers = peers_of(sockets, args.serve.tokenizer_worker_num)
                liveness = Liveness(peers, args.execute.watchdog_timeout, client.unanswered)
                service = _make_service(args, client, front.metrics, style, traces)
                front.service = dataclasses.replace(service, check_moves=liveness.check, sockets=sockets)
                ready()
                if media is not None:
                    media.warm()
                return await _until_end(client, inbox, ring, liveness)
        finally:
            await runner.cleanup()


def _make_client(
    args: Args, sockets: paths.SocketFolder, limits: Limits, metrics: Metrics, media: MediaIntake | None
) -> EngineClient:
    tokenizers = [Sender(sockets.address(paths.tokenizer(i))) for i in range(args.serve.tokenizer_worker_num)]
    scheduler = Sender(sockets.address(paths.SCHEDULER))
    return EngineClient(tokenizers, scheduler, limits, metrics, args, media=media)


def _make_media(args: Args, sockets: paths.SocketFolder, limits: Limits) -> MediaIntake | None:
    """Of a model that takes some."""
    if not limits.media:
        return None
    folder = sockets.path / "media"
    folder.mkdir(mode=0o700)
    return MediaIntake(args.model_folder, folder, args.media, args.share_per_key)


def _make_traces(args: Args) -> "OtlpTraces | None":
    """OpenTelemetry takes time and memory, so only who sends traces imports it."""
    if not args.serve.otlp_traces_endpoint:
        return None
    from ramet.runtime.server.tracing.otlp import make_traces

    return make_traces(args.serve, args.model_name)


def _make_service(
    args: Args, client: EngineClient, metrics: Metrics, style: Style, traces: "OtlpTraces | None"
) -> Service:
    defaults = sampling_defaults(args.model_folder, args.model.sampling_defaults)
    store = ResponseStore(int(args.serve.stored_responses_mb * (1 << 20)), args.share_per_key)
    pooling = read_pooling(args.model_folder)
    started, heals, labels = int(time.time()), args.heals_unasked, read_labels(args)
    return Service(
        args, client, metrics, defaults, started, pooling, labels, style, store, traces=traces, heals_unasked=heals
    )


async def _until_end(
    client: EngineClient, inbox: AsyncReceiver[ToServer], ring: MessageRing, liveness: Liveness
) -> int:
    """Serves until the drain is over or a process ended. Returns the exit code."""
    reading = asyncio.create_task(inbox.deliver_to(partial(ring.handle, client.deliver)))
    watching = asyncio.create_task(liveness.watch(ring))
    collecting = asyncio.create_task(garbage.collect())
    await asyncio.wait((reading, watching, client.draining, client.death), return_when=asyncio.FIRST_COMPLETED)
    if client.draining.done() and not client.death.done():
        drained = asyncio.create_task(_drained(client))
        timeout_s = client.draining.result().timeout_s
        await asyncio.wait((reading, drained, client.death), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            drained.cancel()
            LOGGER.warning("draining took longer than %g s: the requests that still run end with an error", timeout_s)
    for task in (reading, watching, collecting):
        if task.done():
            task.result()  # raises: it never ends by itself
        task.cancel()
    if client.death.done():
        return 1
    fact = "The server is shutting down, and the request did not end in time (--drain-timeout-s)."
    client.fail(ServerError(fact, 503))
    return 0


async def _drained(client: EngineClient) -> None:
    """Returns when the last request has ended. What waits for the end of a pause, or for memory that is released, goes
    on, or it would end with an error.
    """
    if client.admin.pauses.released and (client.num_open or client.num_waiting):
        await _take_memory(client)
    if client.admin.pauses.is_paused:
        LOGGER.info("generation is paused; it goes on, so that what waits can end")
        await client.admin.pauses.go_on()
    await client.requests.none_left()


async def _take_memory(client: EngineClient) -> None:
    """What waits ends with an error where that is not possible."""
    LOGGER.info("memory is released; it is taken again, so that what waits can end")
    try:
        await client.admin.resume_memory(list(MemoryTag))
    except ClientError as error:
        LOGGER.error("memory cannot be taken again: %s", error)
        client.fail(ServerError(f"The server is shutting down, and its memory cannot be taken again: {error}", 503))


def _loop_factory() -> Callable[[], Any]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
