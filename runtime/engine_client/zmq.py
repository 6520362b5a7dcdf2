"""The engine in other processes: messages leave and arrive over ZeroMQ sockets.

Knows no message but the first.
"""

from collections.abc import Coroutine
from typing import Any, NoReturn

from ramet.ipc import paths
from ramet.ipc.channel import AsyncReceiver, Sender
from ramet.ipc.messages import Drain, Limits, PeerDied, ToServer
from ramet.ipc.paths import SocketFolder
from ramet.runtime.config import Args
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.metrics import Metrics


class ZmqTransport:
    """The server's sockets. Made before the engine is ready, so that nothing sent to the server is lost."""

    def __init__(self, sockets: SocketFolder) -> None:
        self._sockets = sockets
        self._inbox: AsyncReceiver[ToServer] = AsyncReceiver(sockets.address(paths.SERVER), ToServer)

    async def limits(self) -> Limits | Drain | PeerDied:
        """The first message: what the engine allows, or why there will be none."""
        first = await self._inbox.recv()
        assert isinstance(first, Limits | Drain | PeerDied), f"{type(first).__name__} came before the limits"
        return first

    def client(self, args: Args, limits: Limits, metrics: Metrics) -> EngineClient:
        """Its handle, which `read` must feed."""
        workers = range(args.serve.tokenizer_worker_num)
        return EngineClient(
            [Sender(self._sockets.address(paths.tokenizer(worker))) for worker in workers],
            Sender(self._sockets.address(paths.SCHEDULER)),
            limits,
            metrics,
            max_queued=args.schedule.max_queued_requests,
            timeout_s=args.serve.request_timeout_s,
            log_requests=args.serve.log_requests,
        )

    def read(self, client: EngineClient) -> Coroutine[Any, Any, NoReturn]:
        """Deliver what arrives, for ever."""
        return self._inbox.deliver_to(client.deliver)
