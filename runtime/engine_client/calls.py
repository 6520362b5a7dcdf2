"""Questions to other processes that have one answer: which future waits for which call number.

Decides call numbers. Knows no verb. An answer whose asker went away is dropped when it comes.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from ramet.ipc.channel import Outbox
from ramet.ipc.message import Message
from ramet.ipc.messages import CallFailed, ControlReply, DetokenizeReply, RenderReply, TokenizeReply
from ramet.runtime.errors import ClientError, RametError

Reply = ControlReply | TokenizeReply | RenderReply | DetokenizeReply


class Calls:
    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[Reply]] = {}

    async def ask(self, outbox: Outbox, question: Callable[[int], Message]) -> Reply:
        """Send the question with its number; returns the answer, or raises what it failed with."""
        number = next(self._numbers)
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._open[number] = waiting
        outbox.send(question(number))
        return await waiting

    def answer(self, message: Reply) -> None:
        waiting = self._open.pop(message.call)
        if not waiting.done():
            waiting.set_result(message)

    def refuse(self, message: CallFailed) -> None:
        waiting = self._open.pop(message.call)
        if not waiting.done():
            waiting.set_exception(ClientError.of(message.error))

    def fail_all(self, error: RametError) -> None:
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(error)
