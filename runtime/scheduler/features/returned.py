"""Log-probabilities and hidden states of a prompt's tokens: which are left to return, and how many a step computes.

Decides that such a step is hardly longer than one of prompts that return nothing, and that its result is small: others
wait for a step and for its message in every process. What is asked of a prompt of thousands of tokens comes in as many
steps as that takes.
"""

from dataclasses import dataclass, field

import numpy as np

from ramet.ipc.messages import Logprobs
from ramet.ipc.spec import HiddenMode
from ramet.runtime.arrays import Doubles
from ramet.runtime.scheduler.feature import PromptLimit, RowFeature
from ramet.runtime.scheduler.request import FeatureState, Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest

EVERY_STATE = (HiddenMode.ALL, HiddenMode.MEAN)  # what needs the hidden state of every prompt token

LOGPROB_TOKENS = (
    8  # prompt tokens that one with log-probabilities counts as: the whole vocabulary is multiplied and sorted
)
MAX_LOGPROBS = 1 << 15  # of prompts, in one step
MAX_HIDDEN = 1 << 18  # numbers of prompts' hidden states, in one step


@dataclass(slots=True)
class ReturnedLogprobs(FeatureState):
    """The log-probabilities of a prompt that a request asks for."""

    next: int | None  # the first token whose log-probability was not returned yet; None: none is left
    planned: int | None = field(init=False)  # the first one that no step was planned for

    def __post_init__(self) -> None:
        self.planned = self.next

    def reusable(self, end: int) -> int:
        return end if self.next is None else min(end, self.next)


@dataclass(slots=True)
class ReturnedStates(FeatureState):
    """The hidden states that a request asks for."""

    mode: HiddenMode
    next: int = 0  # the first token whose hidden state was not returned yet
    planned: int = field(init=False)  # the first one that no step was planned for
    summed: Doubles | None = None  # [hidden size]: the sum of those before `next` (MEAN)

    def __post_init__(self) -> None:
        self.planned = self.next

    def reusable(self, end: int) -> int:
        if self.mode in EVERY_STATE or (self.mode is HiddenMode.FIRST and not self.next):
            return min(end, self.next + 1)
        return end

    def rewound(self, kept: int, computed: int) -> None:
        self.planned = min(self.planned, kept, computed)

    def begin_anew(self) -> None:
        if self.summed is not None:
            self.summed, self.next = None, 0


class ReturnedRows(RowFeature):
    """Rows that return something of their tokens."""

    flag = RowFlag.RETURNS

    def begin(self, running: RunningRequest) -> tuple[()]:
        plan_all(running.request)
        return ()


def plan_all(request: Request) -> None:
    """No step is planned that returns what is left to return."""
    if (logprobs := request.own.get(ReturnedLogprobs)) is not None:
        logprobs.planned = logprobs.next
    if (states := request.own.get(ReturnedStates)) is not None:
        states.planned = states.next


def next_logprob(request: Request) -> int | None:
    """The prompt token whose log-probability is to be returned next; None: none is left, or none is asked for."""
    logprobs = request.own.get(ReturnedLogprobs)
    return None if logprobs is None else logprobs.next


def next_hidden(request: Request) -> int:
    """The first token whose hidden state was not returned yet."""
    states = request.own.get(ReturnedStates)
    return 0 if states is None else states.next


def num_logprob_ids(request: Request) -> int:
    """How many ids the client has chosen whose log-probabilities are returned at each place."""
    asked = request.spec.logprobs
    return 0 if asked is None else len(asked.ids)


def unknown_logprob(request: Request, token: int) -> Logprobs:
    """What is returned of a token of the prompt before which none has seen all that it follows."""
    asked = request.spec.logprobs
    assert asked is not None, request.uid
    nan, ids = np.float32(np.nan).tobytes(), np.array([token], dtype=np.int32).tobytes()
    return Logprobs(request.uid, True, ids, nan, ids * asked.num_top, nan * asked.num_top, nan * len(asked.ids))


def returns_early_states(request: Request) -> bool:
    """States of tokens before the prompt's last one, or their mean: these must be computed, whatever is cached."""
    return request.spec.hidden is HiddenMode.FIRST or request.spec.hidden in EVERY_STATE


def returns_all_states(request: Request) -> bool:
    """The hidden state of every token is returned."""
    return request.spec.hidden is HiddenMode.ALL


def returns_prompt(running: RunningRequest) -> bool:
    """Something is returned of each prompt token that is yet to be computed, or of some of them."""
    return _planned_logprob(running) is not None or returns_all_states(running.request)


class ReturnBudget(PromptLimit):
    """What a step may still return of prompts."""

    def __init__(self, hidden_size: int) -> None:
        self._hidden_size = hidden_size
        self._logprobs, self._hidden = MAX_LOGPROBS, MAX_HIDDEN

    def take(self, running: RunningRequest, num: int, cost: int, room: int, *, is_first: bool) -> tuple[int, int]:
        num = max(self._limit(running, num, room), int(is_first))
        return num, self._count(running, num)

    def _limit(self, running: RunningRequest, num: int, tokens: int) -> int:
        """How many of its next `num` tokens fit, where a step may compute prompt tokens that count as `tokens`."""
        num = self._limit_logprobs(running, num, tokens)
        if returns_all_states(running.request):
            planned = running.request.own[ReturnedStates].planned
            known = max(0, planned - running.scheduled)  # tokens whose states were returned before
            num = min(num, known + self._hidden // max(1, self._hidden_size))
        return num

    def _count(self, running: RunningRequest, num: int) -> int:
        """Its next `num` tokens are computed; returns what they count as."""
        places = _places(running, num)
        self._logprobs -= places * _num_logprobs(running.request)
        if returns_all_states(running.request):
            planned = running.request.own[ReturnedStates].planned
            self._hidden -= max(0, running.scheduled + num - planned) * self._hidden_size
        return num + (LOGPROB_TOKENS - 1) * places

    def _limit_logprobs(self, running: RunningRequest, num: int, tokens: int) -> int:
        places = _places(running, num)
        if not places:
            return num
        before = _before(running)
        fit = max(0, min((tokens - before) // LOGPROB_TOKENS, self._logprobs // _num_logprobs(running.request)))
        if fit < places:
            return min(before, tokens) + fit
        return min(num, tokens - (LOGPROB_TOKENS - 1) * places)


def _num_logprobs(request: Request) -> int:
    """How many are returned at each place, if any are."""
    asked = request.spec.logprobs
    return 1 if asked is None else 1 + asked.num_top + len(asked.ids)


def _planned_logprob(running: RunningRequest) -> int | None:
    logprobs = running.request.own.get(ReturnedLogprobs)
    return None if logprobs is None else logprobs.planned


def _before(running: RunningRequest) -> int:
    """Tokens that are computed before the first one whose successor's log-probability is returned."""
    first = _planned_logprob(running)
    assert first is not None
    return first - 1 - running.scheduled


def _places(running: RunningRequest, num: int) -> int:
    """Of its next `num` tokens, those whose successor's log-probability is returned."""
    first = _planned_logprob(running)
    return 0 if first is None else max(0, min(num - _before(running), running.request.prompt_len - first))
