"""What an optional feature adds to the scheduler: hooks that are called only while it has something to do.

The core (a request is queued, admitted, planned, computed, published, ended) names no feature and imports none. It goes
through those that process/compose.py has put together and asks nothing of one whose `work` is empty, so that what
nobody uses costs a turn nothing: not one call.
"""

from collections.abc import Callable, Collection, Sequence, Sized
from concurrent.futures import Future
from typing import TYPE_CHECKING, ClassVar, Protocol

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish
from ramet.runtime.arrays import Flags, Ints
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.engine.extras import Command
from ramet.runtime.engine.step_cost import StepLoad
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RowTable, RunningRequest
from ramet.runtime.scheduler.step import Step

if TYPE_CHECKING:
    from ramet.runtime.scheduler.running import RunningSet


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

    def put_back(self, running: RunningRequest) -> None:
        """It has left its row and goes back to waiting, with every token that it has."""

    def end(self, running: RunningRequest) -> Sequence[Command]:
        """It has left its row and ended. A request that goes back to waiting has not."""
        return ()

    def free(self, table: RowTable, row: int) -> None:
        """The row is free: no step in flight has it."""


class RowFeatures:
    """Features of rows by their bits."""

    def __init__(self) -> None:
        self.bits = 0  # those of any feature
        self._all: list[RowFeature] = []
        self._of: dict[int, Sequence[RowFeature]] = {}  # by the bits that a row has of these

    def add(self, *features: RowFeature) -> None:
        """Call these as well, in this order."""
        self._all += features
        for each in features:
            self.bits |= each.flag

    def of(self, flags: int) -> Sequence[RowFeature]:
        """The features whose bits are among `flags`, which has some of them."""
        asked = flags & self.bits
        if asked not in self._of:
            self._of[asked] = [each for each in self._all if each.flag & asked]
        return self._of[asked]


class AnswerReader(Protocol):
    """Takes what rows asked for beyond tokens out of the results of steps. R rows of a step."""

    apart: Collection[Uid]  # requests that are computed once more

    def begin(self, step: Step, result: StepResult, alive: Flags) -> Flags:
        """alive [R]: rows that are what the step was planned for. Returns [R] those whose results count."""

    def read(self, step: Step, result: StepResult, going: Flags) -> None:
        """Read what is returned of drawn tokens; these are known now."""

    def end(self, step: Step, result: StepResult, going: Flags, ends: dict[int, Finish]) -> None:
        """Tell what is left of the answers. `ends`: by row, why requests end with this step."""


class LateReader(Protocol):
    """Looks at tokens of rows with a bit of RowFlag.TOLD_LATE, before anybody is told of them."""

    def begin_step(self) -> None:
        """A step has drawn such tokens."""

    def token(self, running: RunningRequest, token: int) -> Finish | None:
        """`token` was drawn. Returns why its request ends, if so."""


class RequestLife(Protocol):
    """What is done for requests that have the bit RowFlag.WATCHED, and for parts of others."""

    def open(self, request: Request) -> None:
        """Its Opened message was made."""

    def begin(self, running: RunningRequest) -> Finish | None:
        """It runs and is open. Returns why it ends without a step, if so."""

    def computed(self, request: Request) -> None:
        """Its whole prompt is computed and published."""

    def park(self, running: RunningRequest) -> None:
        """A row with the bit RowFlag.PART is computed, whose request runs on."""

    def end(self, running: RunningRequest, finish: Finish) -> bytes:
        """It is about to give back its row. Returns what it is sent with its end."""

    def close(self, request: Request, finish: Finish) -> None:
        """It has ended, or never ran."""


StepApplied = Callable[[Step, Flags], None]  # a step whose result is there, and which of its rows [R] still run


class PromptLimit(Protocol):
    """How many tokens a step computes of prompts with the bit of a row. Made for each step that has such rows."""

    def take(self, running: RunningRequest, num: int, cost: int, room: int, *, is_first: bool) -> tuple[int, int]:
        """How many of the next `num` tokens of a prompt fit, which count as `cost`, and what these count as.

        The step may still compute prompt tokens that count as `room`. `is_first`: it has none yet, so one must fit.
        """


class TimeLeft(Protocol):
    """The time that a step which is being planned may still take."""

    def most(self, start: int, num: int) -> int:
        """So many of a row's tokens [start, start + num) fit."""

    def add(self, start: int, num: int) -> None:
        """The step computes them."""


class StepBound(Protocol):
    """A bound on the time of steps beside running requests."""

    def beside(self, table: RowTable, decoding: Ints) -> TimeLeft:
        """A step in which the rows `decoding` get one token each."""

    def refusal(self, running: "RunningSet", request: Request) -> str:
        """Why a request cannot run beside those that do; empty: it can."""

    def applied(self, load: StepLoad, begun_s: float) -> None:
        """The result of a step, whose planning began at `begun_s`, was applied now."""


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

    @property
    def promised_tokens(self) -> int:
        """Tokens of memory that what runs will need for it at most, beyond what it has and its output."""
        return 0

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
