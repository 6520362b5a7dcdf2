"""--max-itl-ms: how much of prompts and media a turn computes, so that running requests get their next token in time.

Decides by a prediction of the step's seconds (engine/step_cost.py), which every step that ran corrects a little. Knows
running requests by their columns, no device. What it promises:

- The prompt tokens of a step beside running requests are as many as keep its predicted time under the bound.
- Prompts go on whatever the bound is: the first prompt of a step gets MIN_TOKENS.
- What towers take in a turn counts, too: pieces of media are as many as fit beside the step that follows, which gets so
  many prompt tokens fewer. A piece cannot be cut, so one is computed whatever the bound is, every other turn at most.
- So many requests run at once that such a step stays under the bound; at least one runs. Where even a step of one
  request is predicted to be longer, the bound keeps nobody waiting, and the log says so.
"""

from collections.abc import Callable

import numpy as np

from ramet.runtime import log
from ramet.runtime.arrays import Ints
from ramet.runtime.config import ScheduleArgs
from ramet.runtime.engine.step_cost import MAX_CHUNK, StepCost, StepLoad
from ramet.runtime.errors import ConfigError
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RowTable
from ramet.runtime.scheduler.running import RunningSet

MIN_TOKENS = 16  # of the first prompt of a step: a page of the largest size
HEADROOM = 0.9  # of the bound that a step is planned for: steps vary by some percent
MAX_ERROR = 0.3  # of a prediction that counts as its error at most: a step that was disturbed moves little
UNSURE, NOISE, DRIFT = 0.25, 0.01, 1e-4  # variances: of a factor at first, of a step's time, of a factor a step
MAX_FACTOR = 10.0  # a term is corrected by this factor at most, up or down
SAY_EVERY_S = 60.0


class Prediction:
    """Seconds of a step. Each term of the cost has a factor, which starts at 1 and is tracked by a Kalman filter: the
    first steps correct most, later ones about a tenth of an error, in the terms that can be to blame.
    """

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._factors = np.ones(4)
        self._covariance = np.eye(4) * UNSURE

    def seconds(self, load: StepLoad) -> float:
        a, b, c, d = self._cost.terms(load)
        e, f, g, h = self._factors.tolist()
        return a * e + b * f + c * g + d * h

    def learn(self, load: StepLoad, seconds: float) -> None:
        """A step took so long."""
        terms = np.array(self._cost.terms(load))
        predicted = float(terms @ self._factors)
        if predicted <= 0:
            return
        shares = terms / predicted
        error = min(max(seconds / predicted - 1, -MAX_ERROR), MAX_ERROR)
        covariance = self._covariance
        gain = covariance @ shares / (NOISE + shares @ covariance @ shares)
        self._factors = np.clip(self._factors + gain * error, 1 / MAX_FACTOR, MAX_FACTOR)
        self._covariance = covariance - np.outer(gain, shares @ covariance)

    def drift(self) -> None:
        """A step has run, of this kind or of another: what was learned counts a little less."""
        if np.trace(self._covariance) < 4 * UNSURE:  # what no step tells of is not forgotten without end
            self._covariance = self._covariance + np.eye(4) * DRIFT


class StepTime:
    """The predicted time of a step that is being planned."""

    def __init__(self, predict: Callable[[StepLoad], float], bound_s: float, load: StepLoad) -> None:
        self._predict, self._bound_s = predict, bound_s
        self.load = load
        self._least = MIN_TOKENS

    def most(self, start: int, num: int) -> int:
        """So many of a row's tokens [start, start + num) fit; of the first row that is asked MIN_TOKENS always do."""
        if self._fits(start, num):
            return num
        low, high = 0, num  # low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(start, middle) else (low, middle)
        return max(low, min(self._least, num))

    def add(self, start: int, num: int) -> None:
        self.load, self._least = self.load + StepLoad.of_extend(start, num), 0

    def _fits(self, start: int, num: int) -> bool:
        return self._predict(self.load + StepLoad.of_extend(start, num)) <= self._bound_s


class Pace:
    def __init__(self, max_itl_ms: float, cost: StepCost, clock: Callable[[], float]) -> None:
        self._max_itl_ms, self._bound_s, self._clock = max_itl_ms, max_itl_ms / 1e3 * HEADROOM, clock
        self._decoding, self._mixed = Prediction(cost), Prediction(cost)  # steps that only decode are replayed
        self._applied_s = self._said_s = -float("inf")
        self.spent_s = 0.0  # what this turn took before its step is planned
        if self._is_hopeless:
            log.LOGGER.warning(
                "--max-itl-ms is %g, but a step of one request takes %.1f ms here: beside running requests prompts get "
                "%d tokens a step",
                max_itl_ms, self.seconds(StepLoad(1, 1)) * 1e3, MIN_TOKENS,
            )  # fmt: skip

    def seconds(self, load: StepLoad) -> float:
        """As it is predicted now."""
        return (self._mixed if _has_prompts(load) else self._decoding).seconds(load)

    def room_s(self, table: RowTable, decoding: Ints) -> float:
        """What a turn may take beside a step in which the rows `decoding` get one token each; below 0: nothing."""
        load = _decode(decoding, table.scheduled) + StepLoad(MIN_TOKENS)
        return self._bound_s - self._mixed.seconds(load)

    def beside(self, table: RowTable, decoding: Ints) -> StepTime:
        """A step in which the rows `decoding` get one token each, after `spent_s` of its turn."""
        load = _decode(decoding, table.scheduled)
        if len(decoding) and self.seconds(load) > self._bound_s:
            self._say(len(decoding), self.seconds(load))
        return StepTime(self._mixed.seconds, self._bound_s - self.spent_s, load)

    def refusal(self, running: RunningSet, request: Request) -> str:
        """Why it cannot run beside those that do; empty: it can."""
        if not len(running) or self._is_hopeless:
            return ""
        load = _decode(running.rows, running.table.totals) + StepLoad(1, 1, len(request.tokens))
        if self.seconds(load + StepLoad(MIN_TOKENS)) <= self._bound_s:
            return ""
        return f"would make steps longer than --max-itl-ms {self._max_itl_ms:g} beside {len(running)} running requests"

    def applied(self, load: StepLoad, begun_s: float) -> None:
        """The result of a step, whose planning began at `begun_s`, was applied now."""
        now_s = self._clock()
        self._decoding.drift()
        self._mixed.drift()
        (self._mixed if _has_prompts(load) else self._decoding).learn(load, now_s - max(begun_s, self._applied_s))
        self._applied_s = now_s

    @property
    def _is_hopeless(self) -> bool:
        """No step keeps the bound."""
        return self.seconds(StepLoad(1, 1)) > self._bound_s

    def _say(self, num: int, seconds: float) -> None:
        now_s = self._clock()
        if now_s - self._said_s < SAY_EVERY_S or self._is_hopeless:
            return
        self._said_s = now_s
        log.LOGGER.warning(
            "the next tokens of %d running requests take %.1f ms without any prompt, --max-itl-ms is %g: prompts get "
            "%d tokens a step until it is less",
            num, seconds * 1e3, self._max_itl_ms, MIN_TOKENS,
        )  # fmt: skip


def chunk_of(args: ScheduleArgs, cost: StepCost | None) -> int:
    """--chunked-prefill-size; unset is what the measured cost of a step says."""
    asked = args.chunked_prefill_size
    if asked is None:
        return MAX_CHUNK if cost is None else cost.chunk
    return asked if asked > 0 else 1 << 30


def pace_of(args: ScheduleArgs, cost: StepCost | None, clock: Callable[[], float]) -> Pace | None:
    """None: no bound on the time between tokens was asked for. Raises ConfigError."""
    if args.max_itl_ms is None:
        return None
    if cost is None:
        raise ConfigError(
            f"--max-itl-ms is {args.max_itl_ms:g}, but nothing is known of how long a step takes: --runner scripted "
            "needs --scripted-step-ms or --scripted-token-us for it"
        )
    return Pace(args.max_itl_ms, cost, clock)


def _has_prompts(load: StepLoad) -> bool:
    return load.pairs > 0 or load.tokens > load.draws


def _decode(rows: Ints, lengths: Ints) -> StepLoad:
    """One new token for each row, after so many."""
    return StepLoad(len(rows), len(rows), int(lengths[rows].sum()) + len(rows), 0)
