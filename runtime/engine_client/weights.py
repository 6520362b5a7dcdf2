"""Which weights are served, by their version, and how others take their place while requests go on.

Without a pause, requests that arrived before the others are read end with the weights they began with, and later ones
wait for them: no reply has tokens of both. While generation is paused the others take their place at once, and a
sequence that goes on says from which token on they have drawn its output.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from ramet.ipc.control import Control, ControlReply, HoldRequests, MemoryTag, PlaceWeights, ReadWeights
from ramet.runtime.config import Args
from ramet.runtime.engine_client.caller import Caller
from ramet.runtime.engine_client.open_requests import OpenRequests
from ramet.runtime.engine_client.pauses import Pauses
from ramet.runtime.engine_client.sequences import SequenceTable
from ramet.runtime.errors import ClientError

UPDATED = "aborted by /update_weights_from_disk"


class ServedWeights:
    """`path` and `version` are of those that compute now; `model_name` is what requests may call them.

    `requests` are those that are open, and `abort_all` ends every sequence that was sent.
    """

    def __init__(
        self,
        args: Args,
        ask: Callable[[Callable[[int], Control]], Awaitable[ControlReply]],
        sequences: SequenceTable,
        requests: OpenRequests,
        pauses: Pauses,
        abort_all: Callable[[str], object],
    ) -> None:
        self.path, self.model_name = str(args.model_folder), args.model_name
        self._is_named = bool(args.model.served_model_name)
        self._ask, self._sequences, self._requests = ask, sequences, requests
        self._pauses, self._abort_all = pauses, abort_all
        self.changing = asyncio.Lock()

    @property
    def version(self) -> str:
        return self._sequences.weight_version

    async def update(self, caller: Caller, path: str, version: str | None, *, abort_all: bool) -> int:
        """Returns how many sequences of a pause go on with the others. Raises ClientError; then nothing has changed."""
        async with caller.turn(self.changing):
            if MemoryTag.WEIGHTS in self._pauses.released:
                raise ClientError("model_path", "is refused: the weights are released (/resume_memory_occupation)")
            reply = await self._ask(lambda call: ReadWeights(call, path))
            if not reply.ok:
                raise _refused(reply)
            caller.check_waits()  # before anybody is held or aborted for it
            return await self._place(caller, path, version or path, abort_all)

    async def _place(self, caller: Caller, path: str, version: str, abort_all: bool) -> int:
        begun_s = time.monotonic()
        await self._ask(lambda call: HoldRequests(call, begun_s))
        try:
            if abort_all:
                self._abort_all(UPDATED)
            with caller.waits():
                await self._none_before(begun_s)
            number = self._sequences.name_weights(version)
            reply = await self._ask(lambda call: PlaceWeights(call, number))
        finally:
            await self._ask(lambda call: HoldRequests(call, None))
        if not reply.ok:
            raise _refused(reply)
        self.path = path
        if not self._is_named:
            self.model_name = path
        num_paused: int = msgspec.json.decode(reply.body)["num_paused_requests"]
        return num_paused

    async def _none_before(self, begun_s: float) -> None:
        """Returns when the last request that arrived before has ended, or generation is paused."""
        while not self._pauses.began.is_set() and self._requests.any_before(begun_s):
            self._requests.left.clear()
            waits = [asyncio.ensure_future(event.wait()) for event in (self._requests.left, self._pauses.began)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()

    def rename(self, version: str) -> None:
        """Call those that compute now otherwise, for sequences that begin later."""
        self._sequences.weight_version = version


def _refused(reply: ControlReply) -> ClientError:
    return ClientError("model_path", f"is refused: {msgspec.json.decode(reply.body)['error']}")
