"""What a request with a constraint has beyond others, as long as it lives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ramet.ipc.messages import Finish, Logprobs
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.extras import Command
from ramet.runtime.grammar.output import ConstrainedOutput
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.request import FeatureState
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest


@dataclass(slots=True)
class Constrained(FeatureState):
    """What a request with a constraint has beyond others, as long as it lives."""

    output: ConstrainedOutput
    leave: Callable[[], None]  # says that the request has ended
    unsent: list[tuple[int, Logprobs | None]] = field(default_factory=list)  # tokens that a jump may still replace
    failure: Finish | None = None  # why no mask could be made for its next token
    is_slow: bool = True  # its masks are made and measured one by one, after those that are quick
    mask_s: float = 0.0  # processor time of its next mask, if that was measured
    parse_s: float = 0.0  # time of its library for its last tokens; on a clock that is cheap and counts other threads
    forced_bytes: int | None = None  # of text that a step appends without a draw; None: before the first one does
    undo: bool = False  # its mask was not ready in time: the next drawn token is taken back
    late_mask: Ints | None = None  # [W] int32, which a later turn fills: its step had no time for it
    ready: Ints | None = None  # [W] int32: its next mask, which was filled between two steps
    postponed: Callable[[RunningRequest], Finish | None] | None = None  # a later turn does it with its last tokens

    @property
    def rewinds(self) -> bool:
        return self.output.window > 0

    @property
    def is_late(self) -> bool:
        """A later turn must do something before its next token can be drawn."""
        return self.postponed is not None or self.late_mask is not None


class JumpingRows(RowFeature):
    """Rows whose constraint may say what follows a token before it is drawn."""

    flag = RowFlag.CONSTRAINED

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        if running.request.own[Constrained].output.jumps:
            running.table.flags[running.row] |= RowFlag.JUMPS
        return ()
