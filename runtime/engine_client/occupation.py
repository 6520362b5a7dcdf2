"""Memory of a server that computes nothing for a while: given back to the system, and taken again.

Nothing runs meanwhile, and what is asked waits, as in a pause. Other weights do not change places at the same time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import msgspec

from ramet.ipc.control import Control, ControlReply, MemoryTag, ReleaseMemory, ResumeMemory
from ramet.runtime.engine_client.caller import Caller
from ramet.runtime.engine_client.pauses import Pauses
from ramet.runtime.errors import ClientError


class Occupation:
    """`ask` is Calls.control. Whoever changes weights or memory has `changing`."""

    def __init__(
        self, ask: Callable[[Callable[[int], Control]], Awaitable[ControlReply]], pauses: Pauses, changing: asyncio.Lock
    ) -> None:
        self._ask, self._pauses, self._changing = ask, pauses, changing

    async def release(self, caller: Caller, tags: Collection[MemoryTag]) -> None:
        """What is released already stays so. Raises ClientError while something runs; then nothing has changed."""
        async with caller.turn(self._changing):
            _check(await self._ask(lambda call: ReleaseMemory(call, list(tags))))
            self._pauses.hold(self._pauses.released | frozenset(tags))

    async def resume(self, caller: Caller, tags: Collection[MemoryTag]) -> None:
        """Take back the memory that is released. Raises ClientError; then all of it stays released."""
        async with caller.turn(self._changing):
            _check(await self._ask(lambda call: ResumeMemory(call, list(tags))))
            self._pauses.hold(self._pauses.released - frozenset(tags))


def _check(reply: ControlReply) -> None:
    if not reply.ok:
        raise ClientError("tags", f"are refused: {msgspec.json.decode(reply.body)['error']}")
