"""Requests of programs that make further calls on the same state: the memory that these calls will need.

Decides that a program which has not begun leaves to those that have what these are expected to add. Others get what
is free, whoever is going to need it.
"""

from dataclasses import dataclass
from functools import partial

from ramet.ipc.messages import Generate
from ramet.ipc.spec import FollowUp
from ramet.ipc.stats import WaitKind
from ramet.runtime.arrays import Ints
from ramet.runtime.scheduler.admission import AdmissionRound, Refused, clipped_output, refused
from ramet.runtime.scheduler.features.follow_ups import FollowUps, kind_of
from ramet.runtime.scheduler.request import FeatureState, Request
from ramet.runtime.scheduler.request_feature import RequestFeature
from ramet.runtime.scheduler.reserve_ratio import START_SHARE
from ramet.runtime.scheduler.row_flag import RowFlag

GROWTH_SHARE = 0.75  # of the pool that is kept at most for what programs that have begun may still add
MAX_KEPT_OUT = 16  # programs that are asked in a step, each of which is looked up, whether they fit beside that


@dataclass(frozen=True, slots=True)
class _Calls(FeatureState):
    num: int  # that its program has made before on the same state, as far as they are known


def num_calls(request: Request) -> int:
    """Calls that its program has made before on the same state, as far as they are known."""
    calls = request.own.get(_Calls)
    return 0 if calls is None else calls.num


class _Growth:
    """What programs that have begun are expected to add: `num_tokens`; and how many others were refused for it."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens, self.num_kept_out = num_tokens, 0


class ProgramRequests(RequestFeature):
    """A request of a program that makes further calls on the same state."""

    asked_by = "spec.follow_up"
    flag = RowFlag.WATCHED

    def __init__(self, follow_ups: FollowUps) -> None:
        self._follow_ups = follow_ups

    def receive(self, message: Generate, prompt: Ints) -> int:
        asked: FollowUp | None = message.spec.follow_up
        assert asked is not None
        return self._follow_ups.next_request_arrived(asked)

    def refuse(self, request: Request, shared: int) -> None:
        request.own[_Calls] = _Calls(shared)

    def waits(self, request: Request, round: AdmissionRound) -> Refused | None:
        num = self._growth(round).num_kept_out
        if num < MAX_KEPT_OUT or not _is_new(request, round):
            return None
        return refused(WaitKind.PROGRAMS, f"is behind {num} programs that wait for memory as well")

    def yields(self, request: Request, round: AdmissionRound, needed: int, num_cached: int) -> Refused | None:
        growth = self._growth(round)
        expected = growth.num_tokens + self._expected(request, num_cached)
        left = round.spare - min(expected, int(round.cache.total_tokens * GROWTH_SHARE))
        if needed <= left or not _is_new(request, round):
            return None
        growth.num_kept_out += 1
        why = f"needs {needed} tokens of memory, {max(left, 0)} are left beside what programs may add"
        return refused(WaitKind.PROGRAMS, why)

    def begins(self, request: Request, round: AdmissionRound, num_cached: int) -> None:
        self._growth(round).num_tokens += self._expected(request, num_cached)

    def _growth(self, round: AdmissionRound) -> _Growth:
        return round.own(_Growth, partial(self._made, round))

    def _made(self, round: AdmissionRound) -> _Growth:
        running = (each.request for each in round.running if each.request.spec.follow_up is not None)
        expected = sum(self._expected(request, request.cached_tokens or 0) for request in running)
        return _Growth(self._follow_ups.growth + expected)

    def _expected(self, request: Request, num_cached: int) -> int:
        """Tokens that further calls will add, if each adds as many as this request does itself."""
        asked = request.spec.follow_up
        assert asked is not None, request.uid
        added = request.prompt_len - num_cached + clipped_output(request) * START_SHARE
        return self._follow_ups.expected(kind_of(asked), int(added), num_calls(request) + 1)


def _is_new(request: Request, round: AdmissionRound) -> bool:
    """A program's first call yields memory to programs that run, until it has waited as long as any request may."""
    return not num_calls(request) and not round.is_aged(request)
