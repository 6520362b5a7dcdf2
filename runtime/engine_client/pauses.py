"""Pauses of generation, as an operator asks for them. The scheduler holds what waits; here is what callers are told.

abort      everything that was asked ends now, and the call returns when the last of it has ended
retract    what runs goes back to the queue and loses its keys and values, which are computed again later
in_place   what runs keeps its keys and values and goes on later where it was
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum

from ramet.ipc.control import ContinueGeneration, Control, ControlReply, MemoryTag, PauseGeneration
from ramet.runtime.engine_client.sequences import SequenceTable

ABORTED = "aborted by /pause_generation"


class PauseMode(Enum):
    ABORT = "abort"
    RETRACT = "retract"
    IN_PLACE = "in_place"


class Pauses:
    """`ask` is Calls.control, `abort_all` ends every sequence that was sent.

    `is_paused`: by an operator, or about to be. `released`: the memory that is, without which nothing runs either.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[int], Control]], Awaitable[ControlReply]],
        sequences: SequenceTable,
        abort_all: Callable[[str], object],
    ) -> None:
        self._ask, self._sequences, self._abort_all = ask, sequences, abort_all
        self.began = asyncio.Event()  # set until steps are computed again
        self.is_paused, self.released = False, frozenset[MemoryTag]()

    async def pause(self, mode: PauseMode) -> None:
        """Returns when no step is in flight. What is asked from now on waits. A paused engine may be paused again."""
        self.is_paused = True
        self._tell()
        hit = set(self._sequences.by_uid) if mode is PauseMode.ABORT else set()
        if hit:
            self._abort_all(ABORTED)
        await self._ask(lambda call: PauseGeneration(call, retract=mode is PauseMode.RETRACT))
        await self._sequences.none_left(lambda sequence: sequence.uid in hit)

    async def go_on(self) -> None:
        """Compute again. Nothing changes where the engine is not paused."""
        self.is_paused = False
        self._tell()
        await self._ask(ContinueGeneration)

    def hold(self, released: frozenset[MemoryTag]) -> None:
        """All that is released now."""
        self.released = released
        self._tell()

    def _tell(self) -> None:
        if self.is_paused or self.released:
            self.began.set()
        else:
            self.began.clear()
