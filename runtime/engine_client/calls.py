"""Questions to other processes, each with one answer."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count, cycle
from typing import Any, TypeVar

from ramet.ipc.channel import Outbox
from ramet.ipc.control import Control, ControlReply
from ramet.ipc.message import Message, Uid
from ramet.ipc.messages import (
    Abort,
    CallRefused,
    ChoicesReply,
    Detokenized,
    PromptReply,
    RenderReply,
    Tokenized,
)
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError, RametError

Answer = ControlReply | Tokenized | RenderReply | Detokenized | PromptReply | ChoicesReply
A = TypeVar("A", ControlReply, Tokenized, RenderReply, Detokenized, PromptReply, ChoicesReply)


class Tokenizers:
    """The tokenizer workers, which take turns. An Abort goes to the worker that got the prompt, so that it never
    overtakes it.
    """

    def __init__(self, outboxes: Sequence[Outbox]) -> None:
        self.outboxes = outboxes
        self.turns = cycle(range(len(outboxes)))  # the worker whose turn it is comes next

    def abort(self, sequences: Iterable[GeneratedSequence], message: str) -> None:
        by_worker: dict[int, list[Uid]] = defaultdict(list)
        for sequence in sequences:
            by_worker[sequence.worker].append(sequence.uid)
        for worker, uids in by_worker.items():
            self.outboxes[worker].send(Abort(uids, message))


class Calls:
    """The questions that wait for an answer, `open` by their numbers."""

    def __init__(self, to_scheduler: Outbox) -> None:
        self.to_scheduler = to_scheduler
        self.open: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self.failure: RametError | None = None  # why nothing can be asked any more

    def check_alive(self) -> None:
        """Raises why nothing can be asked any more."""
        if self.failure is not None:
            raise self.failure

    async def control(self, question: Callable[[int], Control]) -> ControlReply:
        """Sends the scheduler what `question` makes of the call's number; returns its answer."""
        return await self.ask(self.to_scheduler, ControlReply, question)

    async def ask(self, outbox: Outbox, kind: type[A], question: Callable[[int], Message]) -> A:
        """Sends the question with its number; returns the answer, or raises what it failed with."""
        self.check_alive()
        number = next(self._numbers)
        waiting = self.open[number] = asyncio.get_running_loop().create_future()
        outbox.send(question(number))
        answer = await waiting
        assert isinstance(answer, kind)
        return answer

    def answer(self, message: Answer | CallRefused) -> None:
        waiting = self.open.pop(message.call)
        if waiting.done():
            return  # whoever asked went away
        if isinstance(message, CallRefused):
            waiting.set_exception(ClientError.of(message.error))
        else:
            waiting.set_result(message)

    def fail(self, error: RametError) -> RametError:
        """Every open question ends with this error, and every later one. Returns the first error, which counts."""
        failure = self.failure = self.failure or error
        for waiting in self.open.values():
            if not waiting.done():
                waiting.set_exception(failure)
        return failure
