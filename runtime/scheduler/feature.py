"""What an optional feature adds to the scheduler: hooks that are called only while it has something to do.

The core (a request is queued, admitted, planned, computed, published, ended) names no feature and imports none. It goes
through those that process/compose.py has put together and asks nothing of one whose `work` is empty, so that what
nobody uses costs a turn nothing: not one call.
"""

from collections.abc import Sequence, Sized
from concurrent.futures import Future
from typing import ClassVar, Protocol

from ramet.ipc.message import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.engine.extras import Command
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RowTable, RunningRequest
from ramet.runtime.scheduler.step import Step


class LateInput(Protocol):
    """What draws wait for because it depends on what earlier steps have drawn: made for steps that `draws_late`."""

    def make(self, step: Step) -> Ints:
        """Make it here."""

    def begin(self, step: Step) -> "Future[Ints]":
        """Make it on another thread; the running set must not change until the future is done."""

    def close(self) -> None:
        """The scheduler ends."""


class MemoryShort(Exception):
    """No room for the next step before the result of the one in flight is applied, or keys that it must not read."""


class RowFeature:
    """What rows with the bit `flag` (RowFlag) have beyond tokens. Each hook that returns commands says what the runner
    does before the next step.
    """

    flag: ClassVar[int]

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        """It has a row, and runs."""
        return ()

    def changed(self, running: RunningRequest) -> Sequence[Command]:
        """Its known tokens have changed otherwise than by a draw."""
        return ()

    def taken_back(self, running: RunningRequest) -> Sequence[Command]:
        """Tokens that it drew were taken back."""
        return ()

    def end(self, running: RunningRequest) -> Sequence[Command]:
        """It has ended. A request that goes back to waiting has not."""
        return ()

    def free(self, table: RowTable, row: int) -> None:
        """The row is free: no step in flight has it."""


class TurnFeature:
    """A feature with something to do between steps. Every hook does nothing unless it is overridden.

    While `work` is empty, none of the hooks but `wake`, `flush` and `close` is called.
    """

    work: Sized = ()  # what it has to do
    apart: Sized = ()  # requests that wait here, and not in the queue: what `why_apart` and `remove` are asked about
    keeps_awake: ClassVar[bool] = False  # the loop waits for no message while there is work
    gives_way: ClassVar[bool] = False  # its work is memory that it keeps for a moment, and others wait for it

    def wake(self) -> None:
        """Another thread has something for it."""

    def before_messages(self) -> None:
        """Messages were taken from the inbox and none of them was handled."""

    def after_messages(self) -> None:
        """What has arrived is queued."""

    def begin_turn(self) -> None:
        """Nothing of this turn is planned."""

    def take_back(self) -> list[Request]:
        """Requests that go back to the queue before a step is planned. Raises MemoryShort."""
        return []

    def proceed(self) -> list[Request]:
        """Rows that run have room for their next token. Returns requests that had to be retracted."""
        return []

    def settle(self) -> None:
        """A step was applied, and what is new of it is about to be sent."""

    def why_apart(self, uid: Uid) -> str:
        """Why a request waits here; empty: it does not."""
        return ""

    def remove(self, uid: Uid) -> Request | None:
        """A request that waits here, and does no longer."""

    @property
    def goes_on(self) -> bool:
        """The next turn has something to do for it, whether or not a step runs."""
        return False

    def wait_s(self, *, is_awaited: bool) -> float | None:
        """For how long the loop may wait for messages; None: for ever. `is_awaited`: others wait for what it keeps."""
        return None

    @property
    def leases(self) -> list[Lease]:
        """What it keeps cached while no request needs it."""
        return []

    def flush(self) -> None:
        """Every cached prefix is forgotten."""

    def close(self) -> None:
        """The scheduler ends."""
