"""Questions to other processes that have one answer: which future waits for which call number.

Decides call numbers. Knows no socket. An answer whose asker went away is dropped when it comes.
"""

import asyncio
from itertools import count

from ramet.ipc.messages import CallFailed, ControlReply, DetokenizeReply, TokenizeReply
from ramet.runtime.errors import ClientError, RametError

Reply = ControlReply | TokenizeReply | DetokenizeReply


class Calls:
    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[Reply]] = {}

    def open(self) -> tuple[int, asyncio.Future[Reply]]:
        number = next(self._numbers)
        self._open[number] = asyncio.get_running_loop().create_future()
        return number, self._open[number]

    def answer(self, message: Reply) -> None:
        waiting = self._open.pop(message.call)
        if not waiting.done():
            waiting.set_result(message)

    def refuse(self, message: CallFailed) -> None:
        waiting = self._open.pop(message.call)
        if not waiting.done():
            waiting.set_exception(ClientError(message.place, message.fact, status=message.status))

    def fail_all(self, error: RametError) -> None:
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(error)
