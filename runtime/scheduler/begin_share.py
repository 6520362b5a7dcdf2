"""How many waiting requests begin in a step beside rows that draw, so that these rows keep their pace.

At most MAX_BEGUN of all clients begin. One client's request may bring thousands of short prompts: beside rows of other
requests its first prompt of a step begins as any other does, and further ones begin only while the prompts of the step
are within `room`, in tokens. Steps set the room: nearly all with many prompts should take at most MAX_TIMES the time of
one in which no further prompts begin, and every LOOK_EVERY-th is such a one. So a large request costs others little
more than a small one does, on any machine. While no other request draws, its prompts begin as fast as rows, memory and
the chunk let them.

Prompts and samples of one client's request have one time of arrival, by which they are known. Knows the columns of rows
and seconds of steps, no device and no cache.
"""

from collections.abc import Callable, Iterator, Sequence

from ramet.runtime.arrays import Ints
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RowTable
from ramet.runtime.scheduler.step import Step, StepTimes

MAX_BEGUN = 64  # requests that begin in one step beside rows that draw: 5 to 8 ms
MAX_TIMES = 1.5  # of a step without further prompts
ROW_TOKENS = 16  # that a prompt counts beside its own: 250 us of admission and results, where a token takes 15
MIN_ROOM = 2 * ROW_TOKENS  # tokens: those of two prompts that are cached
SHRINK, GROW = 0.7, 1.02  # of the room, after a step that took too long, and after another: so one in 20 takes too long
GROW_FAST, FAST_AFTER = 1.1, 64  # of the room, after so many steps in a row that did not, and at the start
MOVE = 1.05  # of the time of a step without further prompts, toward the side of the last one
LOOK_EVERY = 32  # steps that keep prompts out
ENOUGH = f"{MAX_BEGUN} requests begin in this step already, beside running ones"
OTHERS = "other prompts of its request begin in this step, and others wait for their next token"


class BeginShare:
    """`begin` once in a step, then `begins` for each of the `allowed` requests that does, and `end`."""

    def __init__(self, table: RowTable, chunk: int, clock: Callable[[], float]) -> None:
        self._table, self._most, self._clock = table, max(chunk, MIN_ROOM), clock
        self.room = float(MIN_ROOM)
        self._step = self._tokens = 0  # the step, and the tokens of prompts in it
        self.left = 0  # how many more requests may begin in it
        self._drawing: Ints | None = None  # rows; None: none draws
        self._begun = set[float]()  # arrivals of what has begun in the step beside rows of others
        self._out = frozenset[float]()  # those of them from which no more begin
        self.has_kept_out = False  # in this step
        self._full: dict[int, bool] = {}  # step that kept prompts out -> whether no further ones began
        self._until_look = 0  # steps that keep prompts out
        self._num_within = FAST_AFTER  # steps in a row that did not take too long
        self._plain_s = 0.0  # of a typical step without further prompts; 0: none was seen
        self._applied_s = 0.0  # when the last step was

    def begin(self, step: int, drawing: Ints, num_tokens: int) -> None:
        """A step begins in which the rows `drawing` get a token and `num_tokens` of earlier prompts are computed."""
        self._step, self._drawing = step, drawing if len(drawing) else None
        self.left, self._tokens = MAX_BEGUN, num_tokens
        self._begun, self._out, self.has_kept_out = set(), frozenset(), False
        self._full.pop(step, None)

    def allowed(self, ordered: Sequence[Request]) -> Iterator[Request]:
        """Those that do not wait for a later step because of prompts that came with them."""
        for request in ordered:
            if request.arrival_s in self._out:
                self.has_kept_out = True
            else:
                yield request

    def begins(self, request: Request, num_tokens: int) -> None:
        """It runs, and computes so many tokens of its prompt in this step."""
        if self._drawing is None:
            return
        self.left -= 1
        self._tokens += ROW_TOKENS + num_tokens
        if request.arrival_s not in self._begun and (self._table.arrivals[self._drawing] != request.arrival_s).any():
            self._begun.add(request.arrival_s)
        if self._tokens >= self.room or not self._until_look:
            self._out = frozenset(self._begun)

    def end(self) -> None:
        """Nobody else begins in the step."""
        if self.has_kept_out:
            self._full[self._step] = not self._until_look
            self._until_look = (self._until_look or LOOK_EVERY) - 1

    def after_step(self, step: Step, times: StepTimes) -> None:
        now_s = self._clock()
        seconds, self._applied_s = now_s - max(times.begun_s, self._applied_s), now_s
        looked = self._full.pop(step.number, None)
        if looked:
            self._plain_s = self._plain_s * (MOVE if seconds > self._plain_s else 1 / MOVE) or seconds
        elif looked is False:
            within = seconds <= MAX_TIMES * self._plain_s
            self._num_within = self._num_within + 1 if within else 0
            by = (GROW_FAST if self._num_within > FAST_AFTER else GROW) if within else SHRINK
            self.room = min(max(self.room * by, MIN_ROOM), self._most)
